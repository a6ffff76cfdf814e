"""What a nest becomes on a CPU, as text for people."""

from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.targets.cpu import CpuTarget


def source_of(nest: LoopNest) -> str:
    """The text that is compiled.  Raises BuildError where the nest has a form without code."""
    return emit(nest).text


def assembly_of(source: str, target: CpuTarget) -> str:
    """The assembly that the compiler makes of such a text."""
    return assembly(source, target)

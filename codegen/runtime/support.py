"""Kernels of our own that are written by hand: what measures, and what looks at the processor."""

from hlotune.codegen.llvm.compile import compile_object
from hlotune.schedules.targets.cpu import CpuTarget


def machine_code(text: str, target: CpuTarget, name: str) -> bytes:
    """The object of a module's text, with the instructions of the target.

    Args:
        name: what error messages call the module.

    Raises BuildError where the compiler does not accept the text.
    """
    return compile_object(text, target, name)

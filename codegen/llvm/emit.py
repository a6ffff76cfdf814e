"""Loop nests to LLVM text.

A root stage becomes a function over a range of tasks (`loops.py`); `kernel` runs them in order,
through the host where there are several tasks, and `prepack_<k>` packs a constant.  Statements are
in `statements.py`, addresses and borders in `loads.py`, where tensors lie in `buffers.py`.  What
copies of a statement have in common is found out once: their lines (`templates.py`,
`expressions.py`), and where they read and store but for constants (`statement_access.py`,
`access_forms.py`).
"""

from dataclasses import dataclass
from math import prod

from hlotune.codegen.llvm.buffers import Scratch
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.loops import StageFunction, tasks
from hlotune.codegen.runtime.abi import HOST
from hlotune.schedules.ir.load_time import form_bytes, preloaded
from hlotune.schedules.ir.nest import LoopNest, StageNest


@dataclass(frozen=True, slots=True)
class Emitted:
    text: str
    scratch_bytes: int
    packed: tuple[tuple[str, str, int], ...]
    """(constant argument, entry that packs it, bytes)."""


def emit(nest: LoopNest) -> Emitted:
    """Raises BuildError where the nest has a form that has no code."""
    module, scratch = Module(features=nest.target.features, rates=nest.target.rates), Scratch(nest)
    packed = []
    for k, (constant, found) in enumerate(preloaded(nest).items()):
        names = [f"pack_stage_{k}", *(f"pack_stage_{k}_{n}" for n in range(1, len(found)))]
        for name, s in zip(names, found, strict=True):
            StageFunction(nest, s, module, scratch, name).write()
        _entry(nest, module, f"prepack_{k}", dict(zip(names, found, strict=True)))
        packed.append((constant, f"prepack_{k}", form_bytes(nest, constant)))
    roots = (s for s in nest.stages if s.at is None and s.scope != "load")
    stages = {f"stage_{k}": s for k, s in enumerate(roots)}
    for name, s in stages.items():
        StageFunction(nest, s, module, scratch, name).write()
    _entry(nest, module, "kernel", stages)
    return Emitted(str(module), scratch.bytes, tuple(packed))


def _entry(nest: LoopNest, module: Module, name: str, stages: dict[str, StageNest]) -> None:
    f = Function(module, f"define i32 @{name}(ptr %call)")
    for function, s in stages.items():
        count = prod(n for _, n in tasks(nest, s))
        if count == 1:
            f.emit(f"call void @{function}(ptr %call, i64 0, i64 1, i64 0)")
            continue
        host = f.op(f"load ptr, ptr {f.op(f'getelementptr i8, ptr %call, i64 {HOST}')}")
        run = f.op(f"load ptr, ptr {host}")
        f.emit(f"call void {run}(ptr {host}, i64 {count}, ptr @{function}, ptr %call)")
    f.finish("ret i32 0")

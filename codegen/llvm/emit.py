"""Loop nests to LLVM text.

A root stage becomes a function over a range of tasks (`stage_function.py`, `loops.py`); `kernel`
runs them in order, through the host where there are several tasks, and `prepack_<k>` packs a
constant.  Statements are in `statements.py`, addresses and borders in `loads.py`, where tensors lie
in `buffers.py`.  What copies of a statement have in common is found out once: their lines
(`templates.py`, `expressions.py`), and where they read and store but for constants
(`statement_access.py`, `access_forms.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from hlotune.codegen.llvm.buffers import Scratch
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.stage_function import StageFunction, tasks
from hlotune.codegen.runtime.abi import HOST
from hlotune.schedules.ir.load_time import form_bytes, preloaded
from hlotune.schedules.ir.nest import LoopNest, StageNest
from hlotune.schedules.ir.regions import parallel_regions


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
    regions = parallel_regions(nest)
    stages = {f"stage_{k}": s for k, s in enumerate(s for region in regions for s in region)}
    for name, s in stages.items():
        StageFunction(nest, s, module, scratch, name).write()
    _kernel(nest, module, [{n: s for n, s in stages.items() if s in region} for region in regions])
    return Emitted(str(module), scratch.bytes, tuple(packed))


def _kernel(nest: LoopNest, module: Module, regions: Sequence[dict[str, StageNest]]) -> None:
    """The kernel: its regions in order, each of several nests as one function over their tasks."""
    counts = dict[str, int]()
    for k, region in enumerate(regions):
        each = {name: prod(n for _, n in tasks(nest, s)) for name, s in region.items()}
        if len(each) > 1:
            _together(module, f"region_{k}", each)
            each = {f"region_{k}": sum(each.values())}
        counts |= each
    _run(module, "kernel", counts)


def _together(module: Module, name: str, counts: Mapping[str, int]) -> None:
    """A function over the tasks of several others, one after the other's."""
    f = Function(
        module, f"define internal void @{name}(ptr %call, i64 %begin, i64 %end, i64 %slot)"
    )
    before = 0
    for function, count in counts.items():
        low = f.larger(f.op(f"sub i64 %begin, {before}"), "0")
        high = f.smaller(f.op(f"sub i64 %end, {before}"), str(count))
        arguments = f"ptr %call, i64 {low}, i64 {high}, i64 %slot"
        call = partial(f.emit, f"call void @{function}({arguments})")
        f.when(f.op(f"icmp slt i64 {low}, {high}"), call)
        before += count
    f.finish()


def _entry(nest: LoopNest, module: Module, name: str, stages: dict[str, StageNest]) -> None:
    _run(module, name, {n: prod(c for _, c in tasks(nest, s)) for n, s in stages.items()})


def _run(module: Module, name: str, counts: Mapping[str, int]) -> None:
    """An entry that runs functions over so many tasks each, one after the other."""
    f = Function(module, f"define i32 @{name}(ptr %call)")
    for function, count in counts.items():
        if count == 1:
            f.emit(f"call void @{function}(ptr %call, i64 0, i64 1, i64 0)")
            continue
        host = f.op(f"load ptr, ptr {f.op(f'getelementptr i8, ptr %call, i64 {HOST}')}")
        run = f.op(f"load ptr, ptr {host}")
        f.emit(f"call void {run}(ptr {host}, i64 {count}, ptr @{function}, ptr %call)")
    f.finish("ret i32 0")

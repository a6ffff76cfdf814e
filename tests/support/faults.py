"""Faults to plant in emitted kernels: in the compute, in the nest, or in the LLVM text."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import Emitted, emit
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load, map_loads
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.steps.schedule import Schedule
from tests.support.computes import NHWC, Case, conv, gemm, tiled, whole

TARGET = TARGETS["x86-64"]
CRASH = "the worker died (SIGSEGV)"


@dataclass(frozen=True)
class Fault:
    """What is done to the compute, to the nest, or to the text of a base."""

    base: str
    compute: Callable[[Compute], Compute] | None = None
    nest: Callable[[LoopNest], LoopNest] | None = None
    text: Callable[[str], str] | None = None
    says: str = ""
    """What its failure says of it."""


def wrong(count: int, place: tuple[int, ...], expected: float, got: float, of: int = 1881) -> str:
    """What a failure says that names elements; by default those of a convolution."""
    where = f"{count} of {of} elements wrong, worst at {place}"
    return f"{where}: expected {expected}, got {got}, off"


def unwritten(count: int, of: int = 1881) -> str:
    return f"result 0 to be written with a number, got {count} of {of} unwritten"


BASES = (
    "gemm",
    "packed",
    "bytes",
    "many",
    "conv",
    "strided",
    "clipped",
    "chunked",
    "copied",
    "tiles",
    "steep",
)


@cache
def base(name: str) -> tuple[Case, Schedule]:
    """A kernel and a schedule that is right.  Vectors of four lanes make 19 channels ragged."""
    if name == "gemm":
        case = gemm(16, 16, 16)
        return case, tiled(case, TARGET, register={"i0": 4, "i1": 2})
    if name == "packed":
        case = gemm(12, 19, 23, frozen=True)
        return case, tiled(case, TARGET, register={"i0": 4}, packs={"a1": "load"})
    if name in ("bytes", "many"):
        m, n = (8, 20) if name == "bytes" else (512, 256)
        x, w = whole(m, 12, dtype=np.int8), whole(12, n, seed=1, dtype=np.int8)
        case = Case(name, lambda x, w: jnp.matmul(x, w, preferred_element_type=jnp.int32), (x, w))
        return case, tiled(case, TARGET, register={"i0": 2})
    if name == "tiles":
        case = Case("tiles", _smooth, (whole(1, 9, 9, 32), whole(3, 3, 32, 16, seed=1)))
        space = winograd_spaces(case.compute, TARGET)[-1]
        return case, space.schedule(space.heuristic())
    if name == "steep":
        case = Case("steep", _steep, (whole(1, 9, 9, 256), whole(3, 3, 256, 16, seed=1)))
        space = winograd_spaces(case.compute, TARGET)[-1]
        config = space.heuristic()
        config[0] = [s.when for s in space.sketches].index("call")
        return case, space.schedule(config)
    return convolution(name)


def _smooth(x: jax.Array, w: jax.Array) -> jax.Array:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
    return jnp.tanh(y / 16)


def _steep(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(16 * lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC))


def convolution(name: str) -> tuple[Case, Schedule]:
    tile = {"i1": 4}
    if name == "strided":
        case = conv(13, 10, 5, 19, stride=2)
        return case, tiled(case, TARGET, register=tile)
    case = conv(9, 11, 5, 19)
    if name == "clipped":
        return case, tiled(case, TARGET, register=tile, clip=["r0", "r1"])
    if name == "chunked":
        steps = {"r0": 3, "r1": 3, "r2": 2}
        return case, tiled(case, TARGET, register=tile, chunked=True, steps=steps)
    packs = {"a0": "task", "a1": "call"} if name == "copied" else {}
    return case, tiled(case, TARGET, register=tile, packs=packs)


def planted(fault: Fault) -> tuple[Case, Built]:
    """The kernel in machine code, with the fault."""
    case, schedule = base(fault.base)
    compute = fault.compute(case.compute) if fault.compute else case.compute
    nest = replay(compute, schedule, TARGET)
    emitted = emit(fault.nest(nest) if fault.nest else nest)
    text = fault.text(emitted.text) if fault.text else emitted.text
    return case, replace(machine_code(case, text, emitted), algorithm=schedule.algorithm)


def machine_code(case: Case, text: str, emitted: Emitted) -> Built:
    names = [t.name for t in case.compute.arguments]
    packed = tuple(Packed(names.index(t), size, entry) for t, entry, size in emitted.packed)
    return Built(compile_object(text, TARGET), emitted.scratch_bytes, packed, 0, TARGET.threads)


# changes of a compute ---------------------------------------------------------------------------


def stage(name: str, change: Callable[[Stage], Stage]) -> Callable[[Compute], Compute]:
    def changed(compute: Compute) -> Compute:
        return replace(
            compute, stages=tuple(change(s) if s.name == name else s for s in compute.stages)
        )

    return changed


def extents(compute: Compute, sizes: dict[str, int]) -> Compute:
    """With other extents of axes, in all stages."""

    def axes(found: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(a, extent=sizes.get(a.name, a.extent)) for a in found)

    stages = (replace(s, parallel=axes(s.parallel), reduce=axes(s.reduce)) for s in compute.stages)
    return replace(compute, stages=tuple(stages))


def loading(
    tensor: str, change: Callable[[Load], Expr], where: str = "contract"
) -> Callable[[Compute], Compute]:
    """With another expression in the place of each load of a tensor."""

    def changed(s: Stage) -> Stage:
        moves = {x: change(x) for x in s.loads if x.tensor == tensor}
        assert moves
        return replace(s, values=tuple(map_loads(v, moves) for v in s.values))

    return stage(where, changed)


def moved(d: int, by: int | Affine) -> Callable[[Load], Load]:
    """The index of a dimension with something added."""
    return lambda x: replace(x, index=(*x.index[:d], x.index[d] + by, *x.index[d + 1 :]))


def indexed(change: Callable[[tuple[Affine, ...]], tuple[Affine, ...]]) -> Callable[[Load], Load]:
    return lambda x: replace(x, index=change(x.index))


def swapped(compute: Compute) -> Compute:
    """The contraction with its operands in each other's place."""
    names = {"a0": "a1", "a1": "a0"}

    def changed(s: Stage) -> Stage:
        moves: dict[Load, Expr] = {x: replace(x, tensor=names[x.tensor]) for x in s.loads}
        return replace(s, values=tuple(map_loads(v, moves) for v in s.values))

    return stage("contract", changed)(compute)


def without(op: str) -> Callable[[Compute], Compute]:
    """The last stage without an operation: its first operand instead."""

    def plain(x: Expr) -> Expr:
        if not isinstance(x, Apply):
            return x
        args = tuple(plain(a) for a in x.args)
        return args[0] if x.op == op else replace(x, args=args)

    return stage("out", lambda s: replace(s, values=tuple(map(plain, s.values))))


def storing(
    change: Callable[[tuple[Affine, ...]], tuple[Affine, ...]],
) -> Callable[[Compute], Compute]:
    return stage(
        "out",
        lambda s: replace(s, stores=tuple(Store(x.tensor, change(x.index)) for x in s.stores)),
    )


def typed(compute: Compute, tensor: str, dtype: str) -> Compute:
    """With another element type of a tensor, wherever it is loaded."""
    tensors = tuple(replace(t, dtype=dtype) if t.name == tensor else t for t in compute.tensors)
    for s in compute.stages:
        if any(x.tensor == tensor for x in s.loads):
            compute = loading(tensor, lambda x: replace(x, dtype=dtype), s.name)(compute)
    return replace(compute, tensors=tensors)


def shaped(compute: Compute, tensor: str, *shape: int) -> Compute:
    """With a tensor taken for one of another shape."""
    tensors = (replace(t, shape=shape) if t.name == tensor else t for t in compute.tensors)
    return replace(compute, tensors=tuple(tensors))


# changes of a nest and of a text ----------------------------------------------------------------


def packing(tensor: str, change: Callable[[Load], Load]) -> Callable[[LoopNest], LoopNest]:
    """With another load in the copy of a packed tensor."""

    def changed(nest: LoopNest) -> LoopNest:
        copy = nest.stage(f"{tensor}.packed")
        (load,) = copy.stage.loads
        return nest.put(replace(copy, stage=replace(copy.stage, values=(change(load),))))

    return changed


def shortened(nest: LoopNest) -> LoopNest:
    """Without the last channel of the products of tiles."""
    products = nest.stage("products")
    (channel,) = products.stage.reduce
    shorter = replace(channel, extent=channel.extent - 1)
    return nest.put(replace(products, stage=replace(products.stage, reduce=(shorter,))))


def one_term_lost(text: str) -> str:
    """Where tiles are transformed, channel 8 of the last one is read as zeros.

    That tile has one result a feature.  The loop over tiles stands in that of a task, and the one
    over channels in that over tiles.
    """
    loops = r"(define internal void @stage_1.*?%\w+ = phi i64" + 2 * r".*?(%\w+) = phi i64"
    found = re.search(loops + r"[^\n]*\n)(.*?)(?=\n\w+:)", text, re.DOTALL)
    assert found, "no loops over tiles and channels in the text"
    head, tile, channel, body = found.groups()
    lost = f"%t = icmp eq i64 {tile}, 8\n%c = icmp eq i64 {channel}, 8\n%lost = and i1 %t, %c\n"
    vector = "<4 x float>"
    body, loads = re.subn(
        rf"(%\w+) = load {vector}, (ptr %\w+), align 4",
        rf"\1r = load {vector}, \2, align 4\n"
        rf"\1z = insertelement {vector} \1r, float 0.0, i32 0\n"
        rf"\1 = select i1 %lost, {vector} \1z, {vector} \1r",
        body,
    )
    assert loads == 36, f"expected the 36 elements of a tile, got {loads} loads"
    return text[: found.start()] + head + lost + body + text[found.end() :]


def not_stored(task: int) -> Callable[[str], str]:
    """What a task of four lanes of integers makes goes elsewhere."""

    def change(text: str) -> str:
        number = re.search(r"(%\w+) = phi i64 \[ %begin", text)
        place = re.search(r"store <4 x i32> %\w+, ptr (%\w+)", text)
        assert number and place, "no loop over tasks with a store in it"
        lost, own = f"%lost = icmp eq i64 {number[1]}, {task}", f"{place[1]}.own"
        chosen = f"{place[1]} = select i1 %lost, ptr @elsewhere, ptr {own}"
        text = edited(rf"{place[1]} (= getelementptr .*)", rf"{own} \1\n  {lost}\n  {chosen}")(text)
        return "@elsewhere = internal global [4096 x i8] zeroinitializer\n" + text

    return change


def off_by_one(task: int) -> Callable[[str], str]:
    """What a task of four lanes of integers stores first is one more."""

    def change(text: str) -> str:
        number = re.search(r"(%\w+) = phi i64 \[ %begin", text)
        assert number, "no loop over tasks"
        store = (
            rf"%more = add <4 x i32> \1, splat (i32 1)\n  %here = icmp eq i64 {number[1]}, {task}"
            r"\n  %given = select i1 %here, <4 x i32> %more, <4 x i32> \1"
            r"\n  store <4 x i32> %given,"
        )
        return edited(r"store <4 x i32> (%\w+),", store, count=1)(text)

    return change


def edited(
    pattern: str, replacement: str | Callable[[re.Match[str]], str], count: int = 0
) -> Callable[[str], str]:
    """With all places (or the first few) of a pattern replaced; there must be some."""

    def change(text: str) -> str:
        result, found = re.subn(pattern, replacement, text, count=count)
        assert found, f"nothing to replace in the text: {pattern}"
        return result

    return change


def stale(text: str) -> str:
    """The first accumulator starts with what it held at the end of the loop before."""
    vector = "<4 x float>"
    phi = re.search(rf"= phi {vector} \[ zeroinitializer, %(\w+) \], \[ (%\w+), %(\w+) \]", text)
    assert phi
    before, last, latch = phi.groups()
    start, end = phi.span()
    text = text[:start] + phi.group().replace("zeroinitializer", "%stale") + text[end:]
    text = before_branch(text, before, f"%stale = load {vector}, ptr @stale")
    text = before_branch(text, latch, f"store {vector} {last}, ptr @stale")
    return f"@stale = internal global {vector} zeroinitializer\n" + text


def before_branch(text: str, label: str, line: str) -> str:
    """A line more at the end of a block."""
    start = text.index(f"\n{label}:")
    at = text.index("\n  br ", start)
    return f"{text[:at]}\n  {line}{text[at:]}"

"""Sketches of a contraction on a CPU, and the steps that a filled-in sketch stands for.

Each parallel axis is split into tasks, groups, blocks and a register tile, each reduce axis into
chunks, steps and an unrolled part:

    parallel a.0 ...            tasks, one of the axes outermost
      a.1 ...                   groups                         <- before them packs for a "task"
        a.2 ...                 register tiles of a block      <- before them packs for a "block"
          registers = 0
          r.0 ..  r.1 ..        the reduction
            r.2 .. a.3 .. v     unrolled: rows x vectors
          epilogue, store

and in a chunked sketch the chunks r.0 stand between groups and tiles, with partial sums in scratch.
"""

from dataclasses import dataclass, field
from math import gcd

from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import Layout
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.steps.pack import outermost, packed_name
from hlotune.schedules.steps.steps import (
    Accumulate,
    Clip,
    ComputeAt,
    Pack,
    Parallel,
    Peel,
    Prefetch,
    Preload,
    Reorder,
    Split,
    Step,
    Stream,
    Unroll,
    Vectorize,
)
from hlotune.schedules.targets.cpu import LINE_BYTES
from hlotune.schedules.targets.machine import SHARED_ELEMENTS

PACK_LEVELS = ("none", "load", "call", "task", "block", "chunk")


@dataclass(frozen=True, slots=True)
class Sketch:
    """The structure: what is vectorized, how reductions run, where each operand is packed."""

    vector: str
    """The vectorized axis."""
    chunked: bool
    """Whether reductions are cut into chunks."""
    packs: tuple[tuple[str, str], ...]
    """(tensor, level of PACK_LEVELS) for each operand that may be packed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """The numbers: trips by axis, orders as tuples of axes."""

    register: dict[str, int]
    """Rows of the register tile; vectors for the vectorized axis."""
    block: dict[str, int]
    group: dict[str, int]
    unroll: dict[str, int]
    steps: dict[str, int]
    """Iterations of r.1 in a chunk; the chunk of an unchunked sketch is the whole axis."""
    task_order: tuple[str, ...]
    group_order: tuple[str, ...]
    tile_order: tuple[str, ...]
    reduce_order: tuple[str, ...]
    clip: frozenset[str] = field(default_factory=frozenset)
    peel: frozenset[str] = field(default_factory=frozenset)
    prefetch: int = 0
    """What is asked for: 0 nothing, 1 the next panel, 2 the rows of the next chunk."""
    serial: bool = False
    """One thread runs all tasks, in the same order."""
    streams: int = 1
    """Panels of what is packed at load that a register tile reads side by side, where its vectors
    are so many equal parts."""


def steps_of(c: Contraction, sketch: Sketch, t: Tiling, lanes: int) -> tuple[Step, ...]:
    """The schedule's steps, in the order in which they apply."""
    steps = _out(c, sketch, t, lanes)
    steps += _core_chunked(c, sketch, t, lanes) if sketch.chunked else _core(c, sketch, t, lanes)
    steps += _packs(c, sketch, t, lanes)
    steps += _borders(c, sketch, t)
    if t.prefetch == 2:
        first = t.reduce_order[0]
        steps += [Stream(c.core.name, x, f"{first}.0") for x in streamed(c, sketch, first)]
    elif t.prefetch and streams_of(sketch, t) == 1:
        steps += [Prefetch(c.core.name, f"{x}.packed") for x in prefetched(c, sketch)]
    loaded = {tensor for tensor, level in sketch.packs if level == "load"}
    for stage in c.before:
        steps += _small(stage, lanes, sketch.vector, loaded)
    return tuple(steps)


def _out(c: Contraction, sketch: Sketch, t: Tiling, lanes: int) -> list[Step]:
    out, v = c.out.name, sketch.vector
    rows = [a.name for a in c.parallel if a.name != v]
    steps: list[Step] = [Split(out, a, (t.group[a], t.block[a], t.register[a])) for a in rows]
    steps.append(Split(out, v, (t.group[v], t.block[v], t.register[v], lanes)))
    order = (
        [f"{a}.0" for a in t.task_order]
        + [f"{a}.1" for a in t.group_order]
        + [f"{a}.2" for a in t.tile_order]
    )
    order += [f"{a}.3" for a in rows] + [f"{v}.3", f"{v}.4"]
    steps += [Reorder(out, tuple(order)), Vectorize(out, f"{v}.4"), Unroll(out, f"{v}.3")]
    steps += [Unroll(out, f"{a}.3") for a in reversed(rows)]
    return steps if t.serial else [*steps, Parallel(out, f"{t.task_order[-1]}.0")]


def _core(c: Contraction, sketch: Sketch, t: Tiling, lanes: int) -> list[Step]:
    """The whole reduction of a register tile at once, for the epilogue to read from registers."""
    core, v = c.core.name, sketch.vector
    rows = [a.name for a in c.parallel if a.name != v]
    steps: list[Step] = [
        ComputeAt(core, c.out.name, f"{t.tile_order[-1]}.2"),
        Split(core, v, (lanes,)),
    ]
    steps += [
        Split(core, r.name, (-(-r.extent // t.unroll[r.name]), t.unroll[r.name])) for r in c.reduce
    ]
    order = [f"{r}.{k}" for k in range(3) for r in t.reduce_order] + rows + [f"{v}.0", f"{v}.1"]
    steps += [Reorder(core, tuple(order)), Vectorize(core, f"{v}.1"), Unroll(core, f"{v}.0")]
    steps += [Unroll(core, a) for a in reversed(rows)]
    steps += [Unroll(core, f"{r}.2") for r in reversed(t.reduce_order)]
    return [*steps, Accumulate(core, "")]


def _core_chunked(c: Contraction, sketch: Sketch, t: Tiling, lanes: int) -> list[Step]:
    core, v = c.core.name, sketch.vector
    rows = [a.name for a in c.parallel if a.name != v]
    steps: list[Step] = [ComputeAt(core, c.out.name, f"{t.group_order[-1]}.1")]
    steps += [Split(core, a, (t.register[a],)) for a in rows]
    steps.append(Split(core, v, (t.register[v], lanes)))
    steps += [Split(core, r.name, (t.steps[r.name], t.unroll[r.name])) for r in c.reduce]
    order = [f"{r}.0" for r in t.reduce_order] + [f"{a}.0" for a in t.tile_order]
    order += [f"{r}.{k}" for k in (1, 2) for r in t.reduce_order]
    order += [f"{a}.1" for a in rows] + [f"{v}.1", f"{v}.2"]
    steps += [Reorder(core, tuple(order)), Vectorize(core, f"{v}.2"), Unroll(core, f"{v}.1")]
    steps += [Unroll(core, f"{a}.1") for a in reversed(rows)]
    steps += [Unroll(core, f"{r}.2") for r in reversed(t.reduce_order)]
    return [*steps, Accumulate(core, f"{t.tile_order[-1]}.0")]


def streams_of(sketch: Sketch, t: Tiling) -> int:
    """Panels that a register tile reads side by side in fact."""
    fits = packs_at_load(sketch) and t.register[sketch.vector] % t.streams == 0
    return t.streams if fits else 1


def packs_at_load(sketch: Sketch) -> bool:
    return any(level == "load" for _, level in sketch.packs)


def _packs(c: Contraction, sketch: Sketch, t: Tiling, lanes: int) -> list[Step]:
    places = {
        "load": ("", "load"),
        "call": ("", "call"),
        "task": (c.out.name, f"{t.task_order[-1]}.0"),
        "block": (c.out.name, f"{t.group_order[-1]}.1"),
        "chunk": (c.core.name, f"{t.reduce_order[-1]}.0"),
    }
    steps: list[Step] = []
    for tensor, level in sketch.packs:
        if level != "none":
            streams = streams_of(sketch, t) if level == "load" else 1
            block = t.register[sketch.vector] // streams * lanes
            order = layout(c, tensor, sketch.vector, block)
            steps.append(Pack(c.core.name, tensor, *places[level], order, lanes))
            if level == "call" and c.compute.tensor(tensor).elements >= SHARED_ELEMENTS:
                steps.append(Parallel(packed_name(tensor), outermost(order)))
    return steps


def layout(c: Contraction, tensor: str, vector: str, block: int) -> Layout:
    """Panels of whole vectors where an operand varies along the vector, else its own order.

    Where the vector's axis is the last digit of a dimension, as features of groups are, panels are
    parts of a digit, of at most `block` elements.
    """
    load = next(x for x in c.operands if x.tensor == tensor)
    along = [d for d, e in enumerate(load.index) if vector in e.coefficients]
    rest = [d for d in range(len(load.index)) if d not in along]
    whole = digit(c, load, vector)
    if whole is not None:
        return ((along[0], gcd(block, whole)), *((d, 1) for d in rest), (along[0], 1))
    if not along:
        rest.sort(key=lambda d: c.inner in load.index[d].coefficients)
    return tuple((d, 1) for d in rest + along)


def digit(c: Contraction, x: Load, vector: str) -> int | None:
    """What panels of an operand must divide: 0 where they may be of any size.

    None where it cannot lie in panels: it does not vary along the vector, or does in windows.
    """
    found = [e for e in x.index if vector in e.coefficients]
    if len(found) != 1 or found[0].coefficients[vector] <= 0:
        return None
    steps = [n for a, n in found[0].terms if a != vector]
    if not steps:
        return 0
    whole, line = gcd(*steps), LINE_BYTES // c.element_bytes(x)
    apart = min(steps) >= c.core.extents[vector] and found[0].coefficients[vector] == 1
    return whole if apart and whole % line == 0 else None


def panelled_dimension(c: Contraction, tensor: str, vector: str) -> int:
    """The dimension that is in panels of an operand packed for vectors along an axis, or -1."""
    dimension, block = layout(c, tensor, vector, 2)[0]
    return dimension if block > 1 else -1


def is_panelled(c: Contraction, tensor: str, vector: str) -> bool:
    """Whether an operand packed for vectors along an axis lies in panels of whole vectors."""
    return panelled_dimension(c, tensor, vector) >= 0


def _borders(c: Contraction, sketch: Sketch, t: Tiling) -> list[Step]:
    """Clips and peels, but for those that no load needs since its operand is packed: of phases with
    fewer taps than others these are left out all the same."""
    packed = {tensor for tensor, level in sketch.packs if level != "none"}
    needed = {a for a, loads in c.windows.items() if any(x.tensor not in packed for x in loads)}
    steps: list[Step] = [
        Clip(c.core.name, f"{r}.1")
        for r in t.reduce_order
        if r in t.clip & (needed | c.phases.keys()) and t.unroll[r] == 1
    ]
    stage, level = (c.core.name, 0) if sketch.chunked else (c.out.name, 2)
    steps += [Peel(stage, f"{a}.{level}") for a in t.tile_order if a in t.peel & needed]
    return steps


def prefetched(c: Contraction, sketch: Sketch) -> tuple[str, ...]:
    """Operands that lie in panels ahead of the loops: what comes next is known."""
    return tuple(
        tensor
        for tensor, level in sketch.packs
        if level in ("load", "call") and layout(c, tensor, sketch.vector, 2)[0][1] > 1
    )


def streamed(c: Contraction, sketch: Sketch, chunk_axis: str) -> tuple[str, ...]:
    """Operands read where they lie, of which each step of the reduction has lines of its own."""
    packs = dict(sketch.packs)
    if not sketch.chunked:
        return ()
    found = (x for x in c.operands if packs[x.tensor] == "none" and chunk_axis in x.axes)
    return tuple(x.tensor for x in found if has_rows(c, x))


def has_rows(c: Contraction, x: Load) -> bool:
    """Whether neighbours in the result, and none in the reduction, share lines of an operand."""
    size = c.element_bytes(x)
    beside = [abs(c.stride(x, a.name)) * size for a in c.parallel if a.extent > 1]
    whole = not x.divisors and x.beside is None
    return whole and c.step_bytes(x) >= LINE_BYTES and any(0 < n < LINE_BYTES for n in beside)


def _small(stage: Stage, lanes: int, vector: str, loaded: set[str]) -> list[Step]:
    """A stage before the contraction, run once a call: its last axis in vectors.

    Sums of what is packed when the program is loaded are computed then too.
    """
    if not stage.parallel:
        return []
    if stage.combine:
        at_load = {x.tensor for x in stage.loads} <= loaded
        return [*_sums(stage, lanes, vector), *([Preload(stage.name)] if at_load else [])]
    last = stage.parallel[-1].name
    return [Split(stage.name, last, (lanes,)), Vectorize(stage.name, f"{last}.1")]


def _sums(stage: Stage, lanes: int, vector: str) -> list[Step]:
    """Sums of an operand, along the vectors of the contraction where they can: so it lies."""
    name, axes = stage.name, [a.name for a in stage.parallel]
    last = vector if vector in axes else axes[-1]
    rows = [a for a in axes if a != last]
    order = (*rows, f"{last}.0", *(r.name for r in stage.reduce), f"{last}.1")
    steps: list[Step] = [Split(name, last, (lanes,)), Reorder(name, order)]
    steps += [Vectorize(name, f"{last}.1"), Accumulate(name, f"{last}.0")]
    return [*steps, Parallel(name, f"{last}.0")] if stage.points >= SHARED_ELEMENTS else steps

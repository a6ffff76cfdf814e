"""Reductions that read values as the stage in front of them stores them: both in one loop.

    for j: e[j] = f(x[j])
    for j: s += e[j]             ->   for j: v = f(x[j]); e[j] = v; s += v

Others read the values from memory later, as the quotients of a softmax do its exponentials; the
reduction has them in registers, and no pass over memory of its own.  It pays where the first cache
does not hold the values until the reduction comes to them: in shorter rows the registers that
either loop has for itself are worth as much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from hlotune.codegen.llvm.points import Point, Span
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import Loop, LoopNest, StageNest, reads, region, stored_bytes

MOST_ELEMENTS = 16
"""Vectors of a body of the reduction, up to which the values of all are computed together."""


@dataclass(frozen=True, slots=True)
class AsStored:
    """The stage in front of a reduction, written out over one body of that."""

    stage: StageNest
    axes: Mapping[str, str]
    """The reduction's axis along which each of its axes is read."""

    def point(self, reduction: Point) -> Point:
        """Where it stands while the reduction stands at a point."""
        one = Span(Affine(), 1, 1)
        return Point({
            a.name: reduction.spans[self.axes[a.name]] if a.name in self.axes else one
            for a in self.stage.stage.parallel
        })  # fmt: skip


def as_stored(nest: LoopNest, maker: StageNest, reduction: StageNest) -> AsStored | None:
    """The stage `maker` inside the loops of the reduction right behind it; None where each needs
    loops of its own."""
    if not (_is_plain(nest, maker) and _adds_in_lanes(reduction)):
        return None
    if 2 * stored_bytes(nest, maker) <= nest.target.l1_bytes:
        return None
    found = reads(maker.stage, reduction.stage)
    axes = _walked(maker, reduction, found[0]) if len(found) == 1 else None
    root = maker.vector_root
    if axes is None or root is None or axes.get(root) != reduction.vector_root:
        return None
    if not _covers(nest, maker, reduction, axes) or not _has_whole_bodies(nest, reduction):
        return None
    loops = [Loop(a.name, a.name, 1, "unroll") for a in maker.stage.parallel if a.name != root]
    loops += [
        Loop(f"{root}.0", root, reduction.lanes, "unroll"),
        Loop(f"{root}.1", root, 1, "vectorize"),
    ]
    return AsStored(replace(maker, loops=tuple(loops)), axes)


def _is_plain(nest: LoopNest, s: StageNest) -> bool:
    """Whether a stage stores one temporary of a task, element by element and without borders."""
    stage = s.stage
    whole = stage.combine is None and not stage.digits and not stage.lookups and not stage.ends
    single = len(stage.stores) == 1 and s.scope == "task" and stage.stored_axes is not None
    temporary = nest.compute.tensor(stage.stores[0].tensor).role == "temporary"
    plain = not (s.layout or s.spacing or s.overrun or s.ends_at or s.accumulate is not None)
    holds = any(x.at is not None and x.at[0] == stage.name for x in nest.stages)
    return whole and single and temporary and plain and not holds and not _has_borders(s)


def _adds_in_lanes(s: StageNest) -> bool:
    """Whether a stage reduces in the lanes of registers, over all of its axes' points."""
    kept = s.reduces_lanes and bool(s.accumulate) and s.stage.combine is not None
    apart = s.stage.scans or s.stage.onto or s.stage.ends or s.stage.digits or s.stage.lookups
    return kept and not apart and not (s.ends_at or s.overrun or s.tiles) and not _has_borders(s)


def _has_borders(s: StageNest) -> bool:
    return any(x.border for x in s.loops)


def _walked(maker: StageNest, reduction: StageNest, x: Load) -> dict[str, str] | None:
    """The reduction's axis along each axis of `maker`, where it reads each element once."""
    if x.along is not None or x.beside is not None or any(n > 1 for n in x.divisors):
        return None
    found = dict[str, str]()
    for axis, e in zip(maker.stage.stored_axes or (), x.index, strict=True):
        if axis is None or not e.terms:
            continue
        if len(e.terms) > 1 or e.terms[0][1] != 1 or e.constant:
            return None
        found[axis] = e.terms[0][0]
    walked = {a.name for a in reduction.stage.axes if a.extent > 1}
    left = [a for a in maker.stage.parallel if a.extent > 1 and a.name not in found]
    once = walked <= set(found.values()) and len(set(found.values())) == len(found)
    return found if once and not left else None


def _covers(
    nest: LoopNest, maker: StageNest, reduction: StageNest, axes: Mapping[str, str]
) -> bool:
    """Whether the reduction reads just what `maker` computes at their place."""
    computed, read = region(nest, maker), region(nest, reduction)
    return maker.at == reduction.at and all(computed[a] == read[b] for a, b in axes.items())


def _has_whole_bodies(nest: LoopNest, s: StageNest) -> bool:
    """Whether bodies divide what the stage walks, and are few vectors."""
    whole, bodies = region(nest, s), dict[str, int]()
    for loop in s.loops[: s.written_out]:
        bodies[loop.root] = loop.step
    divided = all(whole[a.name] % bodies.get(a.name, a.extent) == 0 for a in s.stage.axes)
    sizes = [bodies.get(a.name, whole[a.name]) for a in s.stage.axes]
    own = max(1, nest.target.vector_bytes // 4)
    return divided and prod(sizes) <= MOST_ELEMENTS * own

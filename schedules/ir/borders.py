"""Where loads leave their tensors: which dimensions, along which axes, at which positions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load
from hlotune.schedules.ir.nest import LoopNest, StageNest

MOST_APART = 16
"""Neighbouring positions of a loop that are written apart at a border."""


def index_ranges(stage: Stage) -> dict[str, tuple[int, int]]:
    """Least and largest value of what index maps of a stage use: axes, digits and lookups."""
    ranges = {a.name: (0, a.extent - 1) for a in stage.axes}
    ranges |= {x.name: (0, x.extent - 1) for x in stage.digits}
    return ranges | {x.name: (0, x.most) for x in stage.lookups}


def guarded(compute: Compute, stage: Stage, load: Load) -> tuple[int, ...]:
    """Dimensions in which some point of the stage loads from outside, or between elements."""
    shape, ranges = compute.tensor(load.tensor).shape, index_ranges(stage)
    result = []
    for d, index in enumerate(load.index):
        low, high = index.bounds(ranges)
        if low < 0 or high // load.divisor(d) >= shape[d] or load.divisor(d) > 1:
            result.append(d)
    return tuple(result)


def windows_along(compute: Compute, stage: Stage, root: str) -> tuple[Load, ...]:
    """Loads whose window runs along an axis, forwards or backwards, out of their tensors."""
    return tuple(x for x in stage.loads for _ in leaving_along(compute, stage, x, root))


def ends_along(compute: Compute, stage: Stage, root: str) -> tuple[Load, ...]:
    """Loads that are real only where a window beside them is, which runs along an axis out of its
    tensor: points there add nothing, whether an operand is packed with zeros there or not."""
    return tuple(
        x for x in stage.loads if x.beside and tuple(leaving_along(compute, stage, x.beside, root))
    )


def leaving_along(compute: Compute, stage: Stage, load: Load, root: str) -> Iterator[int]:
    """Dimensions in which a window along an axis takes a load out of its tensor."""
    for d in guarded(compute, stage, load):
        along = load.divisor(d) == 1 and root in load.index[d].coefficients
        if along and not load.is_looked_up(d):
            yield d


def forwards(index: Affine, root: str, extent: int) -> Affine:
    """An index that grows along an axis: where it falls, its mirror image in the dimension.

    Both lie inside at the same points.
    """
    return index if index.coefficients[root] > 0 else index * -1 + (extent - 1)


def is_zero_outside(stage: Stage, load: Load) -> bool:
    """Whether the stage's values are zero for certain wherever a load lies outside its tensor."""
    return load.outside == 0 and all(load in _factors(v) for v in stage.values)


def _factors(value: Expr) -> tuple[Expr, ...]:
    """What a value is the product of, conversions left out; a group counts as one."""
    if isinstance(value, Apply) and value.op in ("multiply", "convert", "dot"):
        return tuple(x for a in value.args for x in _factors(a))
    return (value,)


def interior(compute: Compute, stage: Stage, root: str, size: int) -> tuple[int, int]:
    """Least and largest p with no load outside at the positions p..p+size-1 of a parallel root.

    An empty range (least > largest) says that there are none.
    """
    low, high = 0, stage.extents[root] - size
    for step, least, most, extent in _windows(compute, stage, root):
        low = max(low, ceil(-least / step))
        high = min(high, (extent - 1 - most) // step - (size - 1))
    return low, high


def _windows(compute: Compute, stage: Stage, root: str) -> Iterator[tuple[int, int, int, int]]:
    """For each load that may lie outside along a root: step, least, most and extent.

    At position p of the root its index runs from `step * p + least` to `step * p + most`, in a
    dimension of `extent` elements.
    """
    ranges = index_ranges(stage)
    for load in stage.loads:
        for d in guarded(compute, stage, load):
            if root not in load.index[d].coefficients or load.divisor(d) > 1:
                continue
            extent = compute.tensor(load.tensor).shape[d]
            index = forwards(load.index[d], root, extent)
            c = index.coefficients[root]
            least, most = (index - Affine.axis(root, c)).bounds(ranges)
            yield c, least, most, extent


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring positions of a loop at which the same loads lie inside, and outside."""

    first: int
    last: int
    is_settled: bool
    """Whether each load lies inside, or outside, all through the loop's step."""


def pieces(nest: LoopNest, s: StageNest, k: int) -> list[Piece]:
    """The positions of loop `k`, cut where a load of it or of a stage inside comes in or leaves.

    A stencil has borders, `jnp.roll` a seam at which one part ends and the other begins.
    """
    loop = s.loops[k]
    inner = [x for x in nest.stages if x.at and x.at[0] == s.stage.name and s.index(x.at[1]) >= k]
    users = [x.stage for x in (s, *inner) if loop.root in x.stage.extents and x.scope != "load"]
    if not users:  # copies into panels alone: padding is copied with the rest
        extent = s.stage.extents[loop.root]
        return [Piece(0, (extent - 1) // loop.step * loop.step, is_settled=True)]
    return pieces_of(nest.compute, users, loop.root, loop.step)


def pieces_of(compute: Compute, stages: Sequence[Stage], root: str, step: int) -> list[Piece]:
    """The same of a loop of the first of some stages, in steps along a root."""
    edges = [x for s in stages for x in _edges(compute, s, root, step)]
    extent = stages[0].extents[root]
    cuts = sorted({0, *(_aligned(e, step) for four in edges for e in four)})
    cuts = [c for c in cuts if 0 <= c < extent]
    found = []
    for first, end in zip(cuts, [*cuts[1:], extent], strict=True):
        mixed = any(a <= first < b or c <= first < d for a, b, c, d in edges)
        last = (end - 1) // step * step
        found.append(Piece(first, last, not mixed))
    return found


def copies(found: Sequence[Piece], step: int) -> int:
    """How often the body of a peeled loop is written: once a piece, or for each position of it."""
    apart = sum(_apart(x, step) for x in found)
    return apart + max(1, sum(not _apart(x, step) for x in found))


def _apart(x: Piece, step: int) -> int:
    """Positions of a piece that are written apart; 0 where it is a loop."""
    count = (x.last - x.first) // step + 1
    return 0 if x.is_settled or count > MOST_APART else count


def _aligned(position: int, step: int) -> int:
    """The first position of a loop from there on."""
    return -(-position // step) * step


def _edges(
    compute: Compute, stage: Stage, root: str, size: int
) -> Iterator[tuple[int, int, int, int]]:
    """For each load that may lie outside along a root: a, b, c and d.

    At positions below `a`, and from `d` on, all elements of a step of that size lie outside, from
    `b` to `c` all lie inside.
    """
    for step, least, most, extent in _windows(compute, stage, root):
        comes, is_in = (-1 - most) // step - size + 2, ceil(-least / step)
        leaves, is_out = (extent - 1 - most) // step - size + 2, ceil((extent - least) / step)
        yield (comes, is_in, leaves, is_out) if is_in <= leaves else (comes, is_out) * 2


def bordering(nest: LoopNest, s: StageNest, k: int) -> list[int]:
    """Positions of loop `k` at which it, or a stage inside it, is to be written apart.

    Of more than MOST_APART in a row each makes its checks as the code runs.
    """
    step, found = s.loops[k].step, list[int]()
    for x in pieces(nest, s, k):
        found += range(x.first, x.last + 1, step) if _apart(x, step) else ()
    return found

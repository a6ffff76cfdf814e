"""Where loads leave their tensors: which dimensions, along which axes, at which positions."""

from math import ceil

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load
from hlotune.schedules.ir.nest import LoopNest, StageNest


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
    return tuple(
        x
        for x in stage.loads
        for d in guarded(compute, stage, x)
        if x.divisor(d) == 1 and root in x.index[d].coefficients and not x.is_looked_up(d)
    )


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
    ranges = index_ranges(stage)
    for load in stage.loads:
        for d in guarded(compute, stage, load):
            if root not in load.index[d].coefficients or load.divisor(d) > 1:
                continue
            extent = compute.tensor(load.tensor).shape[d]
            index = forwards(load.index[d], root, extent)
            c = index.coefficients[root]
            least, most = (index - Affine.axis(root, c)).bounds(ranges)
            low = max(low, ceil(-least / c))
            high = min(high, (extent - 1 - most) // c - (size - 1))
    return low, high


def bordering(nest: LoopNest, s: StageNest, k: int) -> list[int]:
    """Positions of loop `k` at which it, or a stage inside it, loads from outside a tensor."""
    loop = s.loops[k]
    inner = [x for x in nest.stages if x.at and x.at[0] == s.stage.name and s.index(x.at[1]) >= k]
    outside = set[int]()
    for user in (s, *inner):
        if loop.root in {a.name for a in user.stage.parallel} and user.scope != "load":
            low, high = interior(nest.compute, user.stage, loop.root, loop.step)
            outside.update(
                p for p in range(0, s.stage.extents[loop.root], loop.step) if not low <= p <= high
            )
    return sorted(outside)

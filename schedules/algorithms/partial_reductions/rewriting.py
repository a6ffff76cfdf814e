"""Reductions of few results cut into parts, which are merged at the end in one order.

    all[i] = merge over r of x[i, r]   ->   all.parts[p0, i] = merge over r of its part
                                            all[i] = merge over p0 of all.parts[p0, i]

Parts are contiguous and equally long, and each is merged in the same order, whoever computes it:
results are the same in every call.  Where no number of parts divides the axis, what is left at its
end, fewer points than there are parts, is merged apart and put to the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from hlotune.schedules.algorithms.cut_stages import Pieces, with_stages_cut
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Expr, Load, map_all_loads

PART = "p0"
"""The axis of the parts."""
FEW_RESULTS = 1 << 10
LEAST_STEPS = 1 << 10
"""Points of a reduction that a part is worth a task for."""
SPARE = 4
"""Up to so many times the parts that are asked for are taken, where only these divide an axis."""


@dataclass(frozen=True, slots=True)
class PartialReductions:
    """Cuts each reduction of few results into at least so many parts."""

    parts: int

    def __str__(self) -> str:
        return f"partial_reductions({self.parts})"

    def __call__(self, compute: Compute) -> Compute:
        """Raises ScheduleError where no reduction has few results and a length to cut."""
        found = with_stages_cut(compute, self._pieces)
        if found is None:
            raise ScheduleError(
                f"{self}: expected a reduction of at most {FEW_RESULTS} results and at least "
                f"{LEAST_STEPS} points a part, got none: use `direct`"
            )
        return found

    def _pieces(self, stage: Stage) -> Pieces | None:
        ways = parts_of(stage, self.parts)
        return None if ways is None else _cut(stage, *ways)


def parts_of(stage: Stage, least: int) -> tuple[str, int] | None:
    """The longest reduction of a stage with the number of its parts; None where it is not cut."""
    cut = stage.combine is None or not stage.reduce or stage.digits or PART in stage.extents
    if cut or stage.scans or stage.onto:
        return None
    axis = max(stage.reduce, key=lambda r: r.extent)
    few = prod(a.extent for a in stage.parallel) <= FEW_RESULTS
    long_enough = prod(r.extent for r in stage.reduce) >= LEAST_STEPS * least
    divisors = (n for n in range(least, SPARE * least + 1) if axis.extent % n == 0)
    ways = next(divisors, min(least, axis.extent))
    return (axis.name, ways) if few and long_enough and ways > 1 else None


def _cut(stage: Stage, axis: str, parts: int) -> tuple[list[Stage], list[Tensor]]:
    """The stage of the parts and the one that merges them, with what is left where the parts do
    not divide the axis, and the tensors between all of them."""
    length, left = divmod(stage.extents[axis], parts)
    first, kept = _part(stage, axis, length, parts)
    loads = tuple(Load(t.name, x.index, t.dtype) for x, t in zip(first.stores, kept, strict=True))
    last = replace(stage, reduce=(Axis(PART, parts),), values=loads)
    if not left:
        return [first, last], kept
    rest, beside = _renamed(_over(stage, axis, left, Affine.axis(axis) + parts * length), "rest")
    most, whole = _renamed(last, "most")
    out = replace(stage, reduce=(), combine=None, values=_both(stage, whole, beside))
    return [first, rest, most, out], [*kept, *beside, *whole]


def _part(stage: Stage, axis: str, length: int, parts: int) -> tuple[Stage, list[Tensor]]:
    """The stage of the parts, of so many points along the axis each, and where it stores them."""
    inside = _over(stage, axis, length, Affine.axis(axis) + Affine.axis(PART, length))
    return _renamed(replace(inside, parallel=(Axis(PART, parts), *stage.parallel)), "parts")


def _over(stage: Stage, axis: str, extent: int, place: Affine) -> Stage:
    """The stage over points of one reduction whose positions are at a place."""
    moved = {x: x.substitute({axis: place}) for x in stage.loads}
    reduce = tuple(replace(r, extent=extent) if r.name == axis else r for r in stage.reduce)
    return replace(stage, reduce=reduce, values=map_all_loads(stage.values, moved))


def _renamed(stage: Stage, suffix: str) -> tuple[Stage, list[Tensor]]:
    """The stage with its results in tensors of their own over its parallel axes."""
    index = tuple(Affine.axis(a.name) for a in stage.parallel)
    shape = tuple(a.extent for a in stage.parallel)
    names = [f"{stage.name}.{k}.{suffix}" for k in range(len(stage.stores))]
    stores = tuple(Store(name, index) for name in names)
    kept = [
        Tensor(name, shape, v.dtype, "temporary")
        for name, v in zip(names, stage.values, strict=True)
    ]
    return replace(stage, name=f"{stage.name}.{suffix}", stores=stores), kept


def _both(stage: Stage, whole: Sequence[Tensor], rest: Sequence[Tensor]) -> tuple[Expr, ...]:
    """What two results for each store come to together."""
    index, found = tuple(Affine.axis(a.name) for a in stage.parallel), list[Expr]()
    assert stage.combine is not None, "a reduction has a monoid"
    for group in stage.groups:
        old, new = (
            tuple(Load(kept[k].name, index, kept[k].dtype) for k in group) for kept in (whole, rest)
        )
        found += stage.combine.merge(old, new)
    return tuple(found)

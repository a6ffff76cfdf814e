"""A reduction cut into parts that are summed apart, and added up at the end.

    contract[i] = sum over r of x[i, r]     ->     contract[p0, i, l0] = sum over r of its part
                                                   sum[i] = sum over p0, l0 of contract[p0, i, l0]

The parts `p0` are contiguous: tasks take one each where results are too few to occupy all threads.
The lanes `l0` are neighbours: vectors along them read what lies together along the reduction, as
rows of a matrix times a vector.  Each part is added up in the same order, whoever computes it, so
that results are the same in every call.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir import monoids
from hlotune.schedules.ir.borders import is_zero_outside
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load, map_loads
from hlotune.schedules.patterns.contraction import SPLIT_LANE

PART = "p0"
"""The axis of the parts that tasks add up apart."""
PARTS, SUM = "parts", "sum"
"""The stages behind the contraction: what keeps its parts, and what adds them up."""
_NAME = re.compile(r"split_reduction\((\w+), (\d+), (\w+), (\d+)\)")


@dataclass(frozen=True, slots=True)
class SplitReduction:
    """How the reduction is cut: an axis into parts, and the same or another into lanes."""

    axis: str
    parts: int
    lane_axis: str
    lanes: int

    def __str__(self) -> str:
        """The name as it stands in schedules: `split_reduction(r0, 2, r0, 16)`."""
        return f"split_reduction({self.axis}, {self.parts}, {self.lane_axis}, {self.lanes})"

    def __call__(self, compute: Compute) -> Compute:
        """Raises ScheduleError for a compute whose last stages are no contraction, or where the
        axes cannot be cut so."""
        if reason := self.refusal(compute):
            raise ScheduleError(f"{self}: {reason}: use `direct`")
        core, out = compute.stages[-2:]
        return _rewritten(compute, self._cut(core), out)

    def refusal(self, compute: Compute) -> str:
        """Why it does not apply, "" where it does."""
        core, out = compute.stages[-2:] if len(compute.stages) > 1 else (None, None)
        if core is None or out is None or not _is_contraction(core, out):
            return "expected a sum that the last stage reads point by point, got another kernel"
        extents = {r.name: r.extent for r in core.reduce}
        for axis, ways in self.ways.items():
            if axis not in extents:
                return f"expected a reduction along one of {[*extents]}, got {axis!r}"
            if not 1 < ways <= extents[axis]:
                return f"expected 2 to {extents[axis]} pieces of {axis}, got {ways}"
            if extents[axis] % ways and not _ends_with_its_loads(compute, core, axis):
                return f"{axis} of {extents[axis]} is no multiple of {ways}, and loads go on beyond"
        return ""

    @property
    def ways(self) -> dict[str, int]:
        """Pieces of each axis that is cut."""
        result = {self.axis: self.parts}
        result[self.lane_axis] = result.get(self.lane_axis, 1) * self.lanes
        return {axis: n for axis, n in result.items() if n != 1} or {self.axis: 1}

    def _cut(self, core: Stage) -> Stage:
        """The reduction with an axis more for its parts, and one for its lanes."""
        places = {r.name: self._place(r) for r in core.reduce}
        steps = {r.name: ceil(r.extent / self.ways.get(r.name, 1)) for r in core.reduce}
        moved = {x: x.substitute(places) for x in core.loads}
        first = (Axis(PART, self.parts),) if self.parts > 1 else ()
        last = (Axis(SPLIT_LANE, self.lanes),) if self.lanes > 1 else ()
        return replace(
            core,
            parallel=(*first, *core.parallel, *last),
            reduce=tuple(replace(r, extent=steps[r.name]) for r in core.reduce),
            values=tuple(map_loads(v, moved) for v in core.values),
        )

    def _place(self, r: Axis) -> Affine:
        """Where a step of a part and a lane stands on an axis."""
        lanes = self.lanes if r.name == self.lane_axis else 1
        place = Affine.axis(r.name, lanes)
        if lanes > 1:
            place = place + Affine.axis(SPLIT_LANE)
        if r.name == self.axis and self.parts > 1:
            place = place + Affine.axis(PART, ceil(r.extent / self.ways[r.name]) * lanes)
        return place


def named(algorithm: str) -> Callable[[Compute], Compute] | None:
    """The rewriting of this name, or None where it is no split of a reduction."""
    found = _NAME.fullmatch(algorithm)
    if found is None:
        return None
    axis, parts, lane_axis, lanes = found.groups()
    return SplitReduction(axis, int(parts), lane_axis, int(lanes))


def _rewritten(compute: Compute, cut: Stage, out: Stage) -> Compute:
    total = compute.tensor(cut.stores[0].tensor)
    held, kept = f"{total.name}.part", f"{total.name}.{PARTS}"
    place = tuple(Affine.axis(a.name) for a in cut.parallel)
    own = tuple(Affine.axis(a.name) for a in out.parallel)
    shape, dtype = tuple(a.extent for a in cut.parallel), total.dtype
    keep = Stage(
        PARTS, cut.parallel, (), (Store(kept, place),), (Load(held, place, dtype),)
    )  # fmt: skip
    pieces = tuple(a for a in cut.parallel if a not in out.parallel)
    stored, loaded = (Store(total.name, own),), (Load(kept, place, dtype),)
    add = Stage(SUM, out.parallel, pieces, stored, loaded, monoids.SUM)
    tensors = tuple(Tensor(name, shape, dtype, "temporary") for name in (held, kept))
    core = replace(cut, stores=(Store(held, place),))
    return Compute((*compute.tensors, *tensors), (*compute.stages[:-2], core, keep, add, out))


def _is_contraction(core: Stage, out: Stage) -> bool:
    own = tuple(Affine.axis(a.name) for a in core.parallel)
    is_sum = core.combine is monoids.SUM and len(core.stores) == 1 and out.combine is None
    read = [x.index for x in out.loads if is_sum and x.tensor == core.stores[0].tensor]
    return is_sum and core.parallel == out.parallel and set(read) == {own}


def _ends_with_its_loads(compute: Compute, core: Stage, axis: str) -> bool:
    """Whether all that varies along an axis lies outside its tensor beyond the end of the axis,
    where a sum of zeros then goes on."""
    found = [x for x in core.loads if axis in x.axes]
    return bool(found) and all(
        is_zero_outside(core, x) and _ends(compute, x, axis, core.extents[axis]) for x in found
    )


def _ends(compute: Compute, x: Load, axis: str, extent: int) -> bool:
    shape = compute.tensor(x.tensor).shape
    return any(
        e == Affine.axis(axis) and x.divisor(d) == 1 and shape[d] == extent
        for d, e in enumerate(x.index)
    )

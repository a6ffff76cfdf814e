"""Reductions of few results cut into parts, which are merged at the end in one order.

    all[i] = merge over r of x[i, r]   ->   all.parts[p0, i] = merge over r of its part
                                            all[i] = merge over p0 of all.parts[p0, i]

Parts are contiguous and equally long, and each is merged in the same order, whoever computes it:
results are the same in every call.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load, map_all_loads

PART = "p0"
"""The axis of the parts."""
FEW_RESULTS = 1 << 10
LEAST_STEPS = 1 << 10
"""Points of a reduction that a part is worth a task for."""
SPARE = 4
"""Up to so many times the parts that are asked for are taken, where only these divide an axis."""
_NAME = re.compile(r"partial_reductions\((\d+)\)")


@dataclass(frozen=True, slots=True)
class PartialReductions:
    """Cuts each reduction of few results into at least so many parts."""

    parts: int

    def __str__(self) -> str:
        return f"partial_reductions({self.parts})"

    def __call__(self, compute: Compute) -> Compute:
        """Raises ScheduleError where no reduction has few results and a length to cut."""
        tensors, stages = list(compute.tensors), list[Stage]()
        for stage in compute.stages:
            ways = parts_of(stage, self.parts)
            if ways is None:
                stages.append(stage)
                continue
            first, last, kept = _cut(stage, *ways)
            stages += first, last
            tensors += kept
        if len(stages) == len(compute.stages):
            raise ScheduleError(
                f"{self}: expected a reduction of at most {FEW_RESULTS} results along an axis that "
                f"some number of parts from {self.parts} on divides, got none: use `direct`"
            )
        return Compute(tuple(tensors), tuple(stages))


def named(algorithm: str) -> Callable[[Compute], Compute] | None:
    """The rewriting of this name, or None where it is none of these."""
    found = _NAME.fullmatch(algorithm)
    return PartialReductions(int(found[1])) if found and int(found[1]) > 1 else None


def parts_of(stage: Stage, least: int) -> tuple[str, int] | None:
    """The longest reduction of a stage with the number of its parts; None where it is not cut."""
    cut = stage.combine is None or not stage.reduce or stage.digits or PART in stage.extents
    if cut or stage.scans or stage.onto:
        return None
    axis = max(stage.reduce, key=lambda r: r.extent)
    few = prod(a.extent for a in stage.parallel) <= FEW_RESULTS
    long_enough = prod(r.extent for r in stage.reduce) >= LEAST_STEPS * least
    divisors = (n for n in range(least, SPARE * least + 1) if axis.extent % n == 0)
    ways = next(divisors, None)
    return (axis.name, ways) if few and long_enough and ways else None


def _cut(stage: Stage, axis: str, parts: int) -> tuple[Stage, Stage, list[Tensor]]:
    """The stage of the parts, the one that merges them, and the tensors between the two."""
    length = stage.extents[axis] // parts
    place = {axis: Affine.axis(axis) + Affine.axis(PART, length)}
    moved = {x: x.substitute(place) for x in stage.loads}
    parallel = (Axis(PART, parts), *stage.parallel)
    index = tuple(Affine.axis(a.name) for a in parallel)
    shape = tuple(a.extent for a in parallel)
    names = [f"{stage.name}.{k}.parts" for k in range(len(stage.stores))]
    first = replace(
        stage,
        name=f"{stage.name}.parts",
        parallel=parallel,
        reduce=tuple(replace(r, extent=length) if r.name == axis else r for r in stage.reduce),
        stores=tuple(Store(name, index) for name in names),
        values=map_all_loads(stage.values, moved),
    )
    loads = tuple(Load(name, index, v.dtype) for name, v in zip(names, stage.values, strict=True))
    last = replace(stage, reduce=(Axis(PART, parts),), values=loads)
    return first, last, [Tensor(x.tensor, shape, x.dtype, "temporary") for x in loads]

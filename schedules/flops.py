"""Arithmetic of the mathematics: what falls on padding and on inserted zeros is left out."""

from math import prod

from hlotune.schedules.compute import Compute, Stage
from hlotune.schedules.expr import Affine, Load
from hlotune.schedules.nest import LoopNest


def flops_of(compute: Compute) -> int:
    """Operations of one run of a kernel, for GFLOP/s and shares of a peak."""
    return sum(real_flops(compute, stage) for stage in compute.stages)


def executed_flops(nest: LoopNest) -> int:
    """Operations that one call has to execute, as its algorithm has it."""
    stages = (s.stage for s in nest.stages if s.scope != "load")
    return sum(real_flops(nest.compute, stage) for stage in stages)


def real_flops(compute: Compute, stage: Stage) -> int:
    """Operations of a stage at those points where all of its loads are real.

    Transforms of whole tiles are executed at the borders too.
    """
    if stage.digits:
        return stage.flops
    flops, counted = stage.flops, set[tuple[Affine, int, int]]()
    for load in stage.loads:
        for dimension, extent in enumerate(compute.tensor(load.tensor).shape):
            border = load.index[dimension], load.divisor(dimension), extent
            if border not in counted:  # loads with equal maps leave their tensors together
                real, total = points(stage, load, dimension, extent)
                flops = flops * real // total
            counted.add(border)
    return flops


def points(stage: Stage, load: Load, dimension: int, extent: int) -> tuple[int, int]:
    """At how many points of its axes an index is real, and how many points there are."""
    index, divisor, extents = load.index[dimension], load.divisor(dimension), stage.extents
    total = prod(extents[axis] for axis, _ in index.terms)
    low, high = index.bounds({axis: (0, n - 1) for axis, n in extents.items()})
    if (divisor == 1 and low >= 0 and high < extent) or not total:
        return 1, 1
    values = _spread(index, extents)
    return sum(
        n for v, n in values.items() if v % divisor == 0 and 0 <= v // divisor < extent
    ), total


def _spread(index: Affine, extents: dict[str, int]) -> dict[int, int]:
    """How often an index takes each of its values."""
    counts = {index.constant: 1}
    for axis, coefficient in index.terms:
        spread: dict[int, int] = {}
        for value, n in counts.items():
            for k in range(extents[axis]):
                place = value + coefficient * k
                spread[place] = spread.get(place, 0) + n
        counts = spread
    return counts

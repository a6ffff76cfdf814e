"""The space of partial reductions: that of the rewritten compute's nests of rows."""

from math import prod

from hlotune.schedules.algorithms.algorithm import Algorithm
from hlotune.schedules.algorithms.partial_reductions.rewriting import (
    PartialReductions,
    named,
    parts_of,
)
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget

RESULTS_A_THREAD = 4
"""Results from which on threads divide these evenly enough."""


def _spaces(compute: Compute, target: CpuTarget) -> tuple[RowsSpace, ...]:
    """One part a thread, where some reduction has too few results to keep all threads busy."""
    parts = target.threads
    cut = [s for s in compute.stages if parts > 1 and parts_of(s, parts)]
    if not any(prod(a.extent for a in s.parallel) < RESULTS_A_THREAD * parts for s in cut):
        return ()
    rewriting = PartialReductions(parts)
    return (space_of(rewriting(compute), target, str(rewriting)),)


PARTIAL_REDUCTIONS = Algorithm(
    name="partial_reductions",
    signature="partial_reductions(parts)",
    rewriting=named,
    spaces=_spaces,
    pattern="rows",
    order="first",
)

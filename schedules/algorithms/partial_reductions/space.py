"""The space of partial reductions: that of the rewritten compute's nests of rows."""

from math import prod

from hlotune.schedules.algorithms.algorithm import Algorithm, numbered
from hlotune.schedules.algorithms.partial_reductions.rewriting import PartialReductions, parts_of
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.spaces.cpu_rows.forms import forms_of, lanes_of, tiles_along
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget

RESULTS_A_THREAD = 4
"""Results from which on threads divide these evenly enough."""


def _spaces(compute: Compute, target: CpuTarget) -> tuple[RowsSpace, ...]:
    """One part a thread, where some reduction has too few results to keep all threads busy."""
    parts = target.threads
    cut = [s for s in compute.stages if parts > 1 and parts_of(s, parts)]
    if not any(_keeps_few_busy(compute, s, target) for s in cut):
        return ()
    rewriting = PartialReductions(parts)
    return (space_of(rewriting(compute), target, str(rewriting)),)


def _keeps_few_busy(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether threads would divide its results unevenly, or the register tiles of these."""
    lanes = lanes_of(compute, stage, target)
    form = forms_of(compute, stage, lanes)[0]
    results = prod(a.extent for a in stage.parallel)
    if results < RESULTS_A_THREAD * target.threads:
        return True
    along = 1 if form.reduces or not form.vector else stage.extents[form.vector]
    tiles = results // along * tiles_along(stage, form, lanes)
    return tiles < target.threads


PARTIAL_REDUCTIONS = Algorithm(
    name="partial_reductions",
    signature="partial_reductions(parts)",
    rewriting=numbered("partial_reductions", PartialReductions),
    spaces=_spaces,
    pattern="rows",
    order="first",
)

"""The space of sums about a mean in one pass: that of the rewritten compute's nests of rows."""

from math import prod

from hlotune.schedules.algorithms.algorithm import Algorithm, numbered
from hlotune.schedules.algorithms.one_pass.rewriting import (
    SUMS,
    AboutAMean,
    OnePass,
    about_a_mean,
    points_of,
)
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import loads
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget

MOST_POINTS, LEAST_POINTS = 64, 16
"""Points of a piece: so few that what is lost to cancellation is little, and so many that what is
kept of each piece is little beside what is read."""
PIECES_A_THREAD = 4
"""Pieces that each thread has at least, so that threads have about equally much to do."""


def _spaces(compute: Compute, target: CpuTarget) -> tuple[RowsSpace, ...]:
    """Pieces of one length, where what is read is no longer in the caches when it is read again.

    The pieces are added up by a nest of their own, whose tasks are runs of pieces.
    """
    found = about_a_mean(compute)
    if found is None or not _pays(compute, found, target):
        return ()
    others = prod(r.extent for r in found.first.reduce if r != found.axis)
    points = points_of(found.axis.extent, others, MOST_POINTS, LEAST_POINTS)
    if points is None or found.axis.extent < points * PIECES_A_THREAD * target.threads:
        return ()
    rewriting = OnePass(points)
    try:
        return (space_of(rewriting(compute), target, str(rewriting), SUMS),)
    except UnsupportedKernel:  # what is kept of all pieces is more than a call may keep
        return ()


def _pays(compute: Compute, found: AboutAMean, target: CpuTarget) -> bool:
    """Whether vectors go along the results, and no cache holds what both stages read."""
    together = any(
        stride(x.index, compute.tensor(x.tensor).strides, a.name) == 1
        for x in loads(found.element)
        for a in found.first.parallel
    )
    names = {x.tensor for s in (found.first, found.last) for x in s.loads}
    return together and sum(compute.tensor(name).bytes for name in names) > target.l3_bytes


ONE_PASS = Algorithm(
    name="one_pass",
    signature="one_pass(points)",
    rewriting=numbered("one_pass", OnePass),
    spaces=_spaces,
    pattern="rows",
    numerics="standard",
    order="alone",
)

"""The space of sums about a mean in one pass: that of the rewritten compute's nests of rows."""

import re
from math import prod

from hlotune.schedules.algorithms.algorithm import Algorithm, Rewriting
from hlotune.schedules.algorithms.one_pass.rewriting import (
    SUMS,
    AboutAMean,
    OnePass,
    about_a_mean,
    points_of,
)
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import loads
from hlotune.schedules.spaces.cpu_rows.forms import lanes_of
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget

MOST_POINTS, LEAST_POINTS = 64, 16
"""Points of a piece: so few that what is lost to cancellation is little, and so many that what is
kept of each piece is little beside what is read."""
PIECES_A_THREAD = 4
"""Pieces that each thread has at least, so that threads have about equally much to do."""
VECTORS_TOGETHER = (4, 2, 1)
"""Vectors of neighbours whose pieces are summed side by side; the most that fit a row are taken.
Each has three sums and a pivot."""
_NAME = re.compile(r"one_pass\((\d+)(?:, (\d+))?\)")


def _spaces(compute: Compute, target: CpuTarget) -> tuple[RowsSpace, ...]:
    """Pieces of one length, where what is read is no longer in the caches when it is read again,
    or of a row no longer in the first one."""
    found = about_a_mean(compute)
    if found is None:
        return ()
    cut, apart = _of_columns(compute, found, target), SUMS
    if cut is None:
        cut, apart = _of_rows(compute, found, target), ""
    if cut is None:
        return ()
    try:
        return (space_of(cut(compute), target, str(cut), apart),)
    except UnsupportedKernel:  # what is kept of all pieces is more than a call may keep
        return ()


def _of_columns(compute: Compute, found: AboutAMean, target: CpuTarget) -> OnePass | None:
    """Pieces where lanes lie along the results.

    They are added up by a nest of their own, whose tasks are runs of pieces.
    """
    if not _pays(compute, found, target):
        return None
    others = prod(r.extent for r in found.first.reduce if r != found.axis)
    points = points_of(found.axis.extent, others, MOST_POINTS, LEAST_POINTS)
    if points is None or found.axis.extent < points * PIECES_A_THREAD * target.threads:
        return None
    return OnePass(points)


def _of_rows(compute: Compute, found: AboutAMean, target: CpuTarget) -> OnePass | None:
    """Pieces where lanes lie along the reduction, of rows that the first cache does not hold; with
    wide vectors alone."""
    if not target.has_wide_vectors or not _has_long_rows(compute, found, target):
        return None
    lanes = lanes_of(compute, found.first, target)
    for neighbours in (n * lanes for n in VECTORS_TOGETHER):
        steps, left = divmod(found.axis.extent, neighbours)
        points = None if left else points_of(steps, 1, MOST_POINTS, LEAST_POINTS)
        if points is not None:
            return OnePass(points, neighbours)
    return None


def _has_long_rows(compute: Compute, found: AboutAMean, target: CpuTarget) -> bool:
    """Whether sums are of rows that lie together, enough for all threads, which are read a second
    time from behind the first cache."""
    names = {x.tensor for x in loads(found.element) if found.axis.name in x.axes}
    row_bytes = found.axis.extent * sum(BYTES[compute.tensor(name).dtype] for name in names)
    rows = prod(a.extent for a in found.first.parallel)
    together = len(found.first.reduce) == 1 and _lies_along(compute, found, found.axis.name)
    return together and rows >= target.threads and row_bytes > target.l1_bytes


def _named(algorithm: str) -> Rewriting | None:
    found = _NAME.fullmatch(algorithm)
    if found is None:
        return None
    cut = OnePass(int(found[1]), int(found[2] or 1))
    return cut if cut.points > 1 and str(cut) == algorithm else None


def _lies_along(compute: Compute, found: AboutAMean, axis: str) -> bool:
    """Whether vectors of the element go along an axis."""
    return any(
        stride(x.index, compute.tensor(x.tensor).strides, axis) == 1 for x in loads(found.element)
    )


def _pays(compute: Compute, found: AboutAMean, target: CpuTarget) -> bool:
    """Whether vectors go along the results, and no cache holds what both stages read."""
    together = any(_lies_along(compute, found, a.name) for a in found.first.parallel)
    names = {x.tensor for s in (found.first, found.last) for x in s.loads}
    return together and sum(compute.tensor(name).bytes for name in names) > target.l3_bytes


ONE_PASS = Algorithm(
    name="one_pass",
    signature="one_pass(points[, neighbours])",
    rewriting=_named,
    spaces=_spaces,
    pattern="rows",
    numerics="standard",
    order="alone",
)

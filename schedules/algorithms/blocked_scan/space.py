"""The space of blocked scans: that of the rewritten compute's nests of rows."""

from math import prod

from hlotune.schedules.algorithms.algorithm import Algorithm, numbered
from hlotune.schedules.algorithms.blocked_scan.rewriting import BlockedScan, blocks_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget


def _spaces(compute: Compute, target: CpuTarget) -> tuple[RowsSpace, ...]:
    """One block a thread, where the other axes of some scan have too few points for all threads."""
    blocks = target.threads
    cut = [s for s in compute.stages if blocks > 1 and blocks_of(s, blocks)]
    if not any(prod(a.extent for a in s.parallel) < blocks for s in cut):
        return ()
    rewriting = BlockedScan(blocks)
    return (space_of(rewriting(compute), target, str(rewriting)),)


BLOCKED_SCAN = Algorithm(
    name="blocked_scan",
    signature="blocked_scan(blocks)",
    rewriting=numbered("blocked_scan", BlockedScan),
    spaces=_spaces,
    pattern="rows",
    order="first",
)

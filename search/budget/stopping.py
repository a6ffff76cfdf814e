"""Decides when a kernel has come so near to its limit that it gets no more batches."""

from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.row_limit import least_seconds, moved_bytes, seconds_of_bytes
from hlotune.schedules.patterns.rows import is_rows
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties, Target

AT_LIMIT = 0.95
"""The search of a kernel stops at this share of its limit."""


def floor_s(compute: Compute, target: Target | None, peaks: Properties) -> float:
    """The least seconds that one call of a kernel takes, whatever its algorithm; 0 where unknown.

    The arithmetic of a contraction is no floor: Winograd's algorithms save some.
    """
    if not isinstance(target, CpuTarget) or not peaks.clock_hz or not peaks.read_bytes_per_s:
        return 0.0
    if is_rows(compute):
        return least_seconds(compute, target, peaks)
    return seconds_of_bytes(moved_bytes(compute), target, peaks)


def share_at_limit(best_s: float, floor_s: float) -> float | None:
    """The share of its limit that a kernel has reached, where that is enough; else None."""
    share = floor_s / best_s
    return share if share >= AT_LIMIT else None

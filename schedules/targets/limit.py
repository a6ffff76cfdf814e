"""The least time that a target's measured peaks allow a kernel, and how near to it a time comes.

It is an under-estimate: no code needs less arithmetic than the kernel states, unless its algorithm
saves some, and none reads its arguments faster than memory gives them.
"""

from dataclasses import dataclass
from typing import Literal

from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.target import Properties, Target

Bound = Literal["compute", "memory"]


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds that one call takes at least, by arithmetic and by memory."""

    compute_s: float
    memory_s: float
    """0 where all arguments and results fit into the last cache and may stand there."""

    @property
    def time_s(self) -> float:
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Bound:
        """The larger of the two."""
        return "compute" if self.compute_s >= self.memory_s else "memory"

    def share(self, time_s: float) -> float:
        """How near a time comes: 1 at the limit; more where an algorithm saves arithmetic."""
        return self.time_s / time_s

    def score(self, default_s: float, time_s: float) -> float | None:
        """The speed-of-light score: the part of the way from the default to the limit that was
        gone; None where the default is at the limit already.
        """
        if default_s <= self.time_s:
            return None
        return (default_s - time_s) / (default_s - self.time_s)


def limit_of(
    flops: int, moved_bytes: int, dtype: str, target: Target, peaks: Properties
) -> Limit | None:
    """The limit of a kernel.

    Args:
        flops: operations of the mathematics, without padding.
        moved_bytes: of all arguments and results, each counted once.
        dtype: the element type in which most of the arithmetic is done.

    Returns None where no peak of the type was measured, or the kernel has no limit above zero.
    """
    peak = peaks.flops_per_s.get(dtype, 0.0)
    if not peak or not peaks.read_bytes_per_s:
        return None
    fits = moved_bytes <= last_cache_bytes(target)
    found = Limit(flops / peak, 0.0 if fits else moved_bytes / peaks.read_bytes_per_s)
    return found if found.time_s > 0 else None


def last_cache_bytes(target: Target) -> int:
    """The size of the last cache; 0 where the target has none that we know."""
    match target:
        case CpuTarget():
            return target.l3_bytes
        case GpuTarget():
            return target.l2_bytes
        case _:
            return 0

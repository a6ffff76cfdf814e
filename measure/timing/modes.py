"""Samples in two modes: those of a default whose threads have a processor each at one time, and
share one at another.

The fast mode is what the default can do, so a speedup is measured against that one.  The rule:

1. Samples in order are cut at the widest gap, by ratio, that leaves two of them and a tenth of all
   on either side.
2. The sample behind the gap is at least 1.2 times the one before it.
3. The median of the slower part is at least 1.4 times that of the faster one.

Threads that share a processor make 1.5 to 2 of the last ratio; of samples about one time, however
noisy, those next to each other are close.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

GAP = 1.2
APART = 1.4
FEWEST = 2
SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Modes:
    fast_s: float
    """Median of the samples in the fast mode."""
    slow_s: float
    slow_share: float
    """The share of all samples that are in the slow mode."""
    below_s: float
    """Samples of at least this are in the slow mode."""


def modes(samples_s: Sequence[float]) -> Modes | None:
    """The two modes of samples; None where they have one."""
    ordered, count = sorted(samples_s), len(samples_s)
    least = max(FEWEST, ceil(SHARE * count))
    if count < 2 * least:
        return None
    cut = max(range(least, count - least + 1), key=lambda k: ordered[k] / ordered[k - 1])
    fast_s, slow_s = median(ordered[:cut]), median(ordered[cut:])
    if ordered[cut] < GAP * ordered[cut - 1] or slow_s < APART * fast_s:
        return None
    return Modes(fast_s, slow_s, (count - cut) / count, ordered[cut])


def fast_time_s(samples_s: Sequence[float]) -> float:
    """The median, of the fast mode where there are two."""
    found = modes(samples_s)
    return found.fast_s if found else median(samples_s)


def slow_time_s(samples_s: Sequence[float]) -> float | None:
    """The median of the slow mode; None where samples have one mode."""
    found = modes(samples_s)
    return found.slow_s if found else None

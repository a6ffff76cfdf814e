"""Results of contractions that are stored past the caches.

A result of few products waits for memory: a store to a line that is in no cache reads it first.
"""

from math import prod

from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_rows.streams import may_pass_caches
from hlotune.schedules.targets.cpu import CpuTarget

FEW_TERMS = 16
"""Products of a result up to which it waits for memory, as those of a window of one channel do."""


def pass_caches(c: Contraction, target: CpuTarget) -> bool:
    """Whether results are stored past the caches: none of these has room for them, and each takes
    few products."""
    terms = prod(r.extent for r in c.reduce)
    return terms <= FEW_TERMS and may_pass_caches(c.compute, c.out, target)

"""How long a kernel takes on one thread at best, and whether other threads are worth waking.

A worker of our own that still looks for work costs about a microsecond, one that sleeps nine and
more (`python -m benchmarks.waking`).  So the smallest kernels run serially by formula, and for
those up to some tens of microseconds it is a knob.
"""

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.targets.cpu import CpuTarget

REPAYS_WAKING = 2.0
"""How many times what waking takes a kernel must take alone, for half of it to be saved."""


def serial_cycles(c: Contraction, target: CpuTarget) -> float:
    """Cycles of one thread at best: multiply-adds in full vectors, or all tensors read once."""
    lanes = max(1, target.vector_bytes // BYTES[c.dtype])
    moved = sum(t.bytes for t in c.compute.tensors if t.is_outer)
    return max(
        c.core.points / (lanes * target.multiply_adds), moved / target.rates.small_kernel_bytes
    )


def runs_alone(c: Contraction, target: CpuTarget) -> bool:
    """Whether waking another thread costs more than it gains, all threads awake."""
    return serial_cycles(c, target) < REPAYS_WAKING * target.rates.wake_cycles


def may_run_alone(c: Contraction, target: CpuTarget) -> bool:
    """Whether it is worth trying: where threads sleep, waking them takes longer."""
    return target.threads > 1 and serial_cycles(c, target) < target.rates.looking_cycles

"""The algorithm `blocks(sketch,knob=value,...)`: a sketch for GPUs, which says all there is.

`tf32_blocks(...)` rounds f32 operands of products to tf32, as XLA does on GPUs by default.
"""

from hlotune.schedules.algorithms.algorithm import Algorithm, Rewriting
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.gpu.searched import blocks_of


def _rewriting(name: str) -> Rewriting | None:
    try:
        blocks_of(name)
    except ScheduleError:
        return None
    return _no_nest


def _no_nest(compute: Compute) -> Compute:
    raise ScheduleError("expected an algorithm that makes a nest, got blocks, which are for GPUs")


BLOCKS = Algorithm(
    name="blocks",
    signature="blocks(sketch,knob=value,...)",
    rewriting=_rewriting,
    spaces=lambda compute, target: (),
)
TF32_BLOCKS = Algorithm(
    name="tf32_blocks",
    signature="tf32_blocks(sketch,knob=value,...)",
    rewriting=_rewriting,
    spaces=lambda compute, target: (),
    numerics="standard",
)

"""The algorithm `blocks(sketch,knob=value,...)`: a sketch for GPUs, which says all there is."""

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

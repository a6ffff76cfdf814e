"""The algorithm `direct`: the compute as it is."""

from hlotune.schedules import cpu
from hlotune.schedules.algorithm import Algorithm, constant
from hlotune.schedules.compute import Compute


def _unchanged(compute: Compute) -> Compute:
    return compute


DIRECT = Algorithm(
    name="direct",
    rewriting=constant(_unchanged),
    spaces=lambda compute, target: (cpu.space_of(compute, target),),
)

"""The algorithm `direct`: the compute as it is."""

from hlotune.schedules.algorithms.algorithm import Algorithm, constant
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_contraction import space as cpu


def _unchanged(compute: Compute) -> Compute:
    return compute


DIRECT = Algorithm(
    name="direct",
    rewriting=constant(_unchanged),
    spaces=lambda compute, target: (cpu.space_of(compute, target),),
)

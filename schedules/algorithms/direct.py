"""The algorithm `direct`: the compute as it is."""

from hlotune.schedules.algorithms.algorithm import Algorithm, AlgorithmSpace, constant
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.attention import is_attention
from hlotune.schedules.patterns.rows import is_rows
from hlotune.schedules.spaces.cpu_contraction import space as contractions
from hlotune.schedules.spaces.cpu_rows import space as rows
from hlotune.schedules.targets.cpu import CpuTarget


def _unchanged(compute: Compute) -> Compute:
    return compute


def _spaces(compute: Compute, target: CpuTarget) -> tuple[AlgorithmSpace, ...]:
    if is_attention(compute):
        return ()
    if is_rows(compute):
        return (rows.space_of(compute, target),)
    return (contractions.space_of(compute, target),)


DIRECT = Algorithm(name="direct", rewriting=constant(_unchanged), spaces=_spaces, pattern="any")

"""The spaces of attention: that of the program's own order, and one that divides results last."""

from hlotune.schedules.algorithms.algorithm import Algorithm
from hlotune.schedules.algorithms.attention.rewriting import (
    DIVIDE_LAST,
    NAME,
    divided_last,
    named,
    rewritten,
)
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_attention.space import AttentionSpace, space_of
from hlotune.schedules.targets.cpu import CpuTarget


def _spaces(compute: Compute, target: CpuTarget) -> tuple[AttentionSpace, ...]:
    return (space_of(rewritten(compute), target, NAME),)


def _spaces_divided_last(compute: Compute, target: CpuTarget) -> tuple[AttentionSpace, ...]:
    try:
        return (space_of(divided_last(compute), target, DIVIDE_LAST),)
    except ScheduleError:
        return ()


ATTENTION_DIVIDED_LAST = Algorithm(
    name=DIVIDE_LAST,
    rewriting=named,
    spaces=_spaces_divided_last,
    pattern="attention",
    numerics="standard",
    order="first",
)
ATTENTION = Algorithm(name=NAME, rewriting=named, spaces=_spaces, pattern="attention")

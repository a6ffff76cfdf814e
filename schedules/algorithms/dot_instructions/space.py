"""The algorithm `dots` and its space: sums of products by the processor's dot instructions."""

from hlotune.schedules.algorithms.algorithm import Algorithm, constant
from hlotune.schedules.algorithms.dot_instructions.rewriting import (
    DOTS,
    dots,
    grouping,
    has_instruction,
)
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.cost_terms import plain_work
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.targets.cpu import CpuTarget


def dots_space(compute: Compute, target: CpuTarget) -> CpuSpace | None:
    """The space of dot instructions, where kernel and target allow them."""
    group = grouping(compute)
    if group is None or not has_instruction(target, group):
        return None
    space = CpuSpace(contraction(dots(compute)), target, DOTS, plain_work(group.contraction))
    return space if space.legal(space.heuristic()[None])[0] else None


def _check_instruction(compute: Compute, target: CpuTarget) -> None:
    found = grouping(compute)
    if found is not None and not has_instruction(target, found):
        raise ScheduleError(
            f"dots: expected a target with an instruction for groups of {found.instruction.group}, "
            f"got {target.name}: use `direct`"
        )


def _spaces(compute: Compute, target: CpuTarget) -> tuple[CpuSpace, ...]:
    space = dots_space(compute, target)
    return () if space is None else (space,)


DOT_INSTRUCTION = Algorithm(
    name=DOTS,
    rewriting=constant(dots),
    spaces=_spaces,
    order="first",
    check_target=_check_instruction,
)

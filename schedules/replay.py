"""A schedule replayed: its steps applied in order, then the limits that hang on all of them."""

from collections.abc import Callable

from hlotune.schedules.compute import Compute
from hlotune.schedules.dots import DOTS, dots, grouping, has_instruction
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.limits import check
from hlotune.schedules.matrix import MATRIX, matrix
from hlotune.schedules.nest import LoopNest, initial
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.split_reduction import named
from hlotune.schedules.target import Target
from hlotune.schedules.widened import WIDENED, widened
from hlotune.schedules.winograd import ALGORITHMS


def replay(compute: Compute, schedule: Schedule, target: Target) -> LoopNest:
    """The nest of a schedule.

    Raises ScheduleError where a step does not apply or a limit is passed.
    """
    nest = unscheduled(compute, schedule.algorithm, target)
    for step in schedule.steps:
        nest = step.apply(nest)
    if schedule.algorithm == MATRIX and not any(s.tiles for s in nest.stages):
        raise ScheduleError(
            "matrix: expected a step Tensorize, got none: vectors do not take such sums; add it"
        )
    check(nest)
    return nest


def unscheduled(compute: Compute, algorithm: str, target: Target) -> LoopNest:
    """The nest before any step.  Raises ScheduleError where the algorithm does not apply."""
    if algorithm == DOTS:
        _check_instruction(compute, target)
    if algorithm not in compute.rewritten:
        compute.rewritten[algorithm] = _rewriting(algorithm)(compute)
    return initial(compute.rewritten[algorithm], target)


def _rewriting(algorithm: str) -> Callable[[Compute], Compute]:
    if algorithm == DOTS:
        return dots
    if algorithm == WIDENED:
        return widened
    if algorithm == MATRIX:
        return matrix
    rewriting = ALGORITHMS.get(algorithm) or named(algorithm)
    if rewriting is None:
        known = ", ".join(
            (*ALGORITHMS, DOTS, WIDENED, MATRIX, "split_reduction(axis, parts, axis, lanes)")
        )
        raise ScheduleError(f"expected an algorithm of {known}, got {algorithm!r}: no nest to make")
    return rewriting


def _check_instruction(compute: Compute, target: Target) -> None:
    found = grouping(compute)
    if found is not None and not has_instruction(target, found):
        raise ScheduleError(
            f"dots: expected a target with an instruction for groups of {found.instruction.group}, "
            f"got {target.name}: use `direct`"
        )

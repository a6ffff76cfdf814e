"""A schedule replayed: its steps applied in order, then the limits that hang on all of them."""

from hlotune.schedules.compute import Compute
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.limits import check
from hlotune.schedules.nest import LoopNest, initial
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.target import Target

ALGORITHMS = ("direct",)


def replay(compute: Compute, schedule: Schedule, target: Target) -> LoopNest:
    """The nest of a schedule.

    Raises ScheduleError where a step does not apply or a limit is passed.
    """
    if schedule.algorithm not in ALGORITHMS:
        raise ScheduleError(
            f"expected an algorithm of {ALGORITHMS}, got {schedule.algorithm!r}: no nest to make"
        )
    nest = initial(compute, target)
    for step in schedule.steps:
        nest = step.apply(nest)
    check(nest)
    return nest

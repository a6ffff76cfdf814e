"""A schedule replayed: its steps applied in order, then the limits that hang on all of them."""

from hlotune.schedules.algorithms.table import algorithm_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest, initial
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget


def replay(compute: Compute, schedule: Schedule, target: CpuTarget) -> LoopNest:
    """The nest of a schedule.

    Raises ScheduleError where a step does not apply or a limit is passed.
    """
    nest = unscheduled(compute, schedule.algorithm, target)
    for step in schedule.steps:
        nest = step.apply(nest)
    algorithm_of(schedule.algorithm).check_nest(nest)
    check(nest)
    return nest


def unscheduled(compute: Compute, name: str, target: CpuTarget) -> LoopNest:
    """The nest before any step.

    Raises ScheduleError where there is no algorithm of that name, or it does not apply.
    """
    algorithm = algorithm_of(name)
    algorithm.check_target(compute, target)
    if name not in compute.rewritten:
        rewriting = algorithm.rewriting(name)
        assert rewriting is not None  # algorithm_of has checked the name
        compute.rewritten[name] = rewriting(compute)
    return initial(compute.rewritten[name], target)

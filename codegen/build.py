"""From a compute and a schedule to code for a target, by that target's backend."""

from hlotune.codegen.backends import backend_of
from hlotune.codegen.built import Built
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Target


def build(compute: Compute, schedule: Schedule, target: Target) -> Built:
    """Raises ScheduleError where the schedule does not apply, BuildError where it has no code."""
    return backend_of(target).emit(compute, schedule, target)

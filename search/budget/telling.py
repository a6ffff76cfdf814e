"""What progress says of a kernel beside what was measured of it."""

from hlotune.schedules.targets.limit import limit_of
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.contest import Contest
from hlotune.search.progress import KernelStarted
from hlotune.search.tasks import Task


def kernel_started(
    contest: Contest, index: int, count: int, limit_s: float | None
) -> KernelStarted:
    return KernelStarted(
        key=contest.task.kernel.key,
        label=contest.task.label,
        index=index,
        count=count,
        default_s=contest.default_s,
        default_slow_s=contest.default_slow_s,
        default_error=contest.default_error,
        known_trials=contest.known_trials,
        calls=contest.task.weight,
        limit_s=limit_s,
    )


def task_limit_s(task: Task, target: Target | None, peaks: Properties | None) -> float | None:
    """The least time of a call that the peaks allow; None where it is not known."""
    if peaks is None or target is None:
        return None
    found = limit_of(task.flops, task.moved_bytes, task.dtype, target, peaks)
    return found.time_s if found else None

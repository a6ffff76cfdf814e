"""The kernels of a run as its budget sees them: each with its two sides, those that had a final,
and those that wait for their defaults to be timed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean

from hlotune.search.budget.spent import Item
from hlotune.search.tasks import Task
from hlotune.search.tuner import KernelTuner


@dataclass(frozen=True, slots=True)
class Contest:
    """A task with its two sides: the default's time, and the search."""

    task: Task
    tuner: KernelTuner
    default_s: float
    known_trials: int
    timing_s: float | None = None
    """The wall-clock time of timing the default; None where the run had done that before."""
    default_slow_s: float | None = None
    """The time of the default's slow mode; None where it has one mode, or was timed before."""
    default_error: float = 0.0
    """The error of the default's own result, in units of the tolerance of `standard`."""
    least_s: float = 0.0
    """What a call takes by the roofline; 0 where nobody knows."""

    @property
    def item(self) -> Item:
        task = self.task
        return Item(self.default_s, task.weight, self.tuner.best_s, self.least_s, task.bytes)


@dataclass
class Decided:
    """The kernels that had their final, with the best time that each had by then."""

    _best_s: dict[str, float] = field(default_factory=dict)

    def note(self, contest: Contest) -> None:
        """Notes that a kernel has had its turn."""
        self._best_s[contest.task.kernel.key] = contest.tuner.best_s

    def covers(self, contest: Contest) -> bool:
        """Whether a kernel has had its turn, and no better candidate was found since."""
        before_s = self._best_s.get(contest.task.kernel.key)
        return before_s is not None and contest.tuner.best_s >= before_s


@dataclass
class Opening:
    """The kernels whose defaults are not timed yet, in the order of their turns."""

    waiting: list[Task] = field(default_factory=list)
    open: Callable[[Task], Contest | None] = lambda task: None
    """Times the default; None where the kernel raises an error, which is told."""
    is_early: Callable[[], bool] = lambda: False
    """Whether defaults are still timed ahead of their kernels' turns."""
    took_s: list[float] = field(default_factory=list)
    """Seconds that opening each contest took."""
    cost_s: Callable[[Task], float] = lambda task: 1.0
    """What deciding a kernel is expected to take, as one beside another."""
    _costs_s: list[float] = field(default_factory=list)
    """The same of those that were opened."""

    def next(self, now: Callable[[], float]) -> Contest | None:
        """The contest of the first kernel that can be opened; None where there is none."""
        while self.waiting:
            start_s = now()
            task = self.waiting.pop(0)
            contest = self.open(task)
            self.took_s.append(now() - start_s)
            self._costs_s.append(self.cost_s(task))
            if contest is not None:
                return contest
        return None

    @property
    def usual_s(self) -> float:
        """What opening one more contest is expected to take."""
        return mean(self.took_s) if self.took_s else 0.0

    @property
    def all_s(self) -> float:
        """What opening all that wait is expected to take, at the pace of those before them: the
        first are the costliest as a rule.
        """
        if not self.took_s:
            return 0.0
        return sum(self.took_s) * sum(map(self.cost_s, self.waiting)) / sum(self._costs_s)

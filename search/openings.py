"""How the kernels of a run are opened: which come first, and other forms of those that lose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from hlotune.measure.trial import Trial
from hlotune.schedules.errors import reason_alone
from hlotune.search.budget.budget import DEFAULTS_SHARE
from hlotune.search.budget.contest import Contest, Opening
from hlotune.search.budget.opening_order import cost_s, promised
from hlotune.search.budget.spending import RIVALS_UNTIL
from hlotune.search.contests import Contests
from hlotune.search.progress import Event, KernelSkipped, Started
from hlotune.search.tasks import Task, other_forms, task_of


@dataclass(kw_only=True)
class Openings:
    """Opens the contests of a run in the order of what they promise."""

    kernels: Contests
    seconds: float | None
    """The seconds of the budget, where they are limited."""
    passed_s: Callable[[], float]
    """The seconds that count against the budget."""
    preparing_s: Callable[[], float]
    """How long preparing the whole program took."""
    tell: Callable[[Event], None]
    """Is told what is known at the start, and of kernels that are left alone."""
    model_words: str = ""
    """What the cost model knows at the start, in words."""
    interrupted: bool = False
    """Whether Ctrl-C came."""

    def contests(self, tasks: Sequence[Task]) -> tuple[list[Contest], Opening]:
        """The contests whose defaults are timed, and the kernels that wait for that.

        Those come first that promise to save most of the program's time for a second of tuning, by
        their rooflines and what the default compiler is known to lag behind.  Where seconds are
        limited one kernel is timed, so that its batch comes soon, or all that an interrupted run
        had timed; else all are.  Ctrl-C leaves the rest out.
        """
        contests: dict[int, Contest] = {}
        opening = Opening()
        try:
            recorded = self._begun(tasks)
            self.kernels.meet(tasks)
            before = [self.kernels.begun_s(t) for t in tasks]
            numbers = {t.kernel: n for n, t in enumerate(tasks)}

            def contest(task: Task) -> Contest | None:
                n = numbers[task.kernel]
                return self.kernels.opened(n, task, recorded[n], before[n])

            def turn(task: Task) -> tuple[bool, float]:
                guess_s, least_s = self.kernels.guess_s(task), self.kernels.least_s(task)
                share = promised(guess_s, least_s, task.weight, task.bytes)
                return before[numbers[task.kernel]] is None, -share

            early_s = DEFAULTS_SHARE * (self.seconds or inf)
            opening = Opening(
                sorted(tasks, key=turn),
                contest,
                is_early=lambda: self.passed_s() - self.preparing_s() <= early_s,
                cost_s=self.cost_s,
            )
            timed = sum(s is not None for s in before)
            at_first = len(tasks) if self.seconds is None else max(1, timed)
            while len(contests) < at_first and (found := opening.next(self.passed_s)):
                contests[numbers[found.task.kernel]] = found
            self.kernels.experience.learn()
        except KeyboardInterrupt:
            self.interrupted = True
        return [contests[n] for n in sorted(contests)], opening

    def cost_s(self, task: Task) -> float:
        """The seconds that deciding a kernel is expected to take, by a guess of its default."""
        return cost_s(self.kernels.guess_s(task), self.kernels.least_s(task), task.bytes)

    def rivals(self, contests: Sequence[Contest]) -> list[Contest]:
        """Contests of other forms of kernels that are no faster than their defaults by now.

        Those of the kernels that take most of the program come first.
        """
        losing = [c for c in contests if c.tuner.best_s >= c.default_s and c.task.rivals]
        losing.sort(key=lambda c: -c.default_s * c.task.weight)
        known = {c.task.kernel for c in contests}
        found: list[Contest] = []
        for site in other_forms([c.task for c in losing], known):
            if self.passed_s() > RIVALS_UNTIL * (self.seconds or inf):
                break
            try:
                task = task_of(site, self.kernels.target, self.kernels.numerics)
            except Exception as error:
                self.tell(KernelSkipped(label=site.label, reason=reason_alone(error)))
                continue
            before_s = self.kernels.begun_s(task)
            trials = self.kernels.recorded(site.kernel, len(contests))
            place = len(contests) + len(found)
            contest = self.kernels.opened(place, task, trials, before_s)
            found += [contest] if contest else []
        return found

    def _begun(self, tasks: Sequence[Task]) -> list[list[Trial]]:
        """The known trials of each kernel; reports how many there are."""
        known = [self.kernels.recorded(t.kernel, len(tasks)) for t in tasks]
        own = sum(map(self.kernels.own_trials, tasks))
        self.tell(
            Started(
                kernels=len(tasks),
                known_trials=sum(map(len, known)) - own,
                own_trials=own,
                model=self.model_words,
            )
        )
        return known

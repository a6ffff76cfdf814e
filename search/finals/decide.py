"""The finals of a run, one kernel after the other, and the seconds that they turn out not to need.

How long finals take is known only roughly before the first of them.  From then on it is measured,
and seconds that were put by and are not needed go back to searching, for the kernels that still
wait for their finals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hlotune.schedules.errors import reason_alone
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.search.budget.reserve import Reserve
from hlotune.search.budget.spending import Contest
from hlotune.search.finals.finals import Referee, final
from hlotune.search.progress import Finalising, KernelSkipped, Progress
from hlotune.search.tuner import Builder
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Final

SearchOn = Callable[[frozenset[int]], bool]
"""Goes on searching for as long as no final needs the time, without the kernels of these numbers;
returns whether Ctrl-C came.
"""


@dataclass(kw_only=True)
class Deciding:
    """Decides the finals of one run.  `interrupted` says that the user ended the search with
    Ctrl-C; then everything is done in a hurry.
    """

    contests: Sequence[Contest]
    reserve: Reserve
    search_on: SearchOn
    builder: Builder
    referee: Referee
    database: Database
    run: str
    under: Conditions
    numerics: Numerics
    progress: Progress
    clock: Callable[[], float]
    """Seconds of the budget that have passed."""
    interrupted: bool
    settled: bool
    finals: dict[int, Final | None] = field(default_factory=dict)
    """The final of each kernel that had its turn, by the kernel's place among the contests; None
    where the kernel stays undecided.
    """

    def decide(self) -> Mapping[int, Final | None]:
        """Decides all kernels, those that matter most first; Ctrl-C leaves the rest undecided."""
        try:
            self.progress(
                Finalising(
                    kernels=len(self._waiting()),
                    interrupted=self.interrupted,
                    settled=self.settled,
                )
            )
            while waiting := self._waiting():
                self._next(waiting)
                if not self.interrupted:
                    self.interrupted = self.search_on(frozenset(self.finals))
        except KeyboardInterrupt:
            self.interrupted = True
        return self.finals

    def _waiting(self) -> list[int]:
        """The kernels that have a champion and no final yet, those first whose champions save the
        program the most time.
        """

        def gain_s(n: int) -> float:
            contest = self.contests[n]
            return contest.task.weight * (contest.default_s - contest.tuner.best_s)

        ready = (n for n, c in enumerate(self.contests) if c.tuner.champions(1))
        return sorted((n for n in ready if n not in self.finals), key=gain_s, reverse=True)

    def _next(self, waiting: Sequence[int]) -> None:
        """Decides the first of the waiting kernels, where there is time for it."""
        n, start_s = waiting[0], self.clock()
        contest = self.contests[n]
        pairs = self.reserve.pairs(
            [self.contests[k] for k in waiting], start_s, hurried=self.interrupted
        )
        found = self._final(contest, pairs) if pairs else None
        self.reserve.learn(contest, pairs, self.clock() - start_s)
        if found:
            self.database.record_final(self.run, contest.task.kernel, found)
        self.finals[n] = found

    def _final(self, contest: Contest, pairs: int) -> Final | None:
        """The final of a kernel; None where it raises an error, which leaves this kernel undecided
        and does not end the run.
        """
        try:
            return final(contest, self.builder, self.referee, pairs, self._standing(contest))
        except Exception as error:
            self.progress(KernelSkipped(label=contest.task.label, reason=reason_alone(error)))
            return None

    def _standing(self, contest: Contest) -> Schedule | None:
        """The schedule that an earlier run decided for; None where that is the default."""
        key = contest.task.kernel.key
        found = decision(self.database, key, numerics=self.numerics, **self.under)
        return found.schedule if found.schedule != DEFAULT else None

"""The finals of a run, one kernel after the other, and the seconds that they turn out not to need.

How long finals take is known only roughly before the first of them.  From then on it is measured,
and seconds that were put by and are not needed go back to searching, for the kernels that still
wait for their finals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hlotune.schedules.errors import reason_alone
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.search.budget.contest import Contest, Decided
from hlotune.search.budget.reserve import Reserve, is_hopeless
from hlotune.search.finals.finals import Keep, Referee, final, keep_nothing
from hlotune.search.finals.interruptible import is_anything_left, over_within
from hlotune.search.progress import Finalising, KernelSkipped, Progress
from hlotune.search.workers import Builder
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import decision, program_of, standing
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.revoke import take_back

WRONG_NOW = "it was faster, and in a later final its results were wrong"
"""Why the schedule that stood is taken back."""

HURRY_S = 10.0
"""The finals of a run that was interrupted as it searched go on for about so many seconds: those
begin that are expected to end by then.  The other kernels stay undecided until the run is taken up
again."""

TOO_LONG = (
    "comparing its champion with the default was expected to take longer than what was left of the "
    f"{HURRY_S:g} seconds after Ctrl-C"
)
"""Why a kernel of an interrupted run stays undecided."""

STILL_AT_WORK = (
    f"what Ctrl-C met was still at work {HURRY_S:g} seconds later, so that nothing could be timed"
)
"""The same where XLA compiled or called the whole program as Ctrl-C came: that does not stop it."""

TOO_LATE = "there was no time left to compare its champion with the default"
"""Why a kernel stays with the default though candidates of it are faster by the search's times."""


class Searching(Protocol):
    """The search of a run, which goes on between finals."""

    interrupted: bool
    """Whether Ctrl-C came."""

    def go_on(self, seconds: float, without: frozenset[int]) -> None:
        """Searches for as long as no final needs the time, without the kernels of these numbers."""
        ...

    def go_on_with_all(self, seconds: float) -> bool:
        """The same with all kernels, once no final waits; returns whether anything was done."""
        ...


@dataclass(kw_only=True)
class Deciding:
    """Decides the finals of one run.  `interrupted` says that the user ended the search with
    Ctrl-C; then everything is done in a hurry.
    """

    contests: Sequence[Contest]
    reserve: Reserve
    searching: Searching
    budget_s: float | None
    decided: Decided
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
    quick_finals: Callable[[Sequence[Contest]], Mapping[int, Final]]
    """The finals of kernels that were decided by their first candidates, by their places."""
    keep: Keep = keep_nothing
    finals: dict[int, Final | None] = field(default_factory=dict)
    """The final of each kernel that had its turn, by the kernel's place among the contests; None
    where the kernel stays undecided.
    """
    _hurried_from_s: float | None = None
    """The time at which the search was found interrupted."""

    def decide(self) -> Mapping[int, Final | None]:
        """Decides all kernels, those that matter most first; Ctrl-C leaves the rest undecided.

        Where the budget has seconds left then, the search goes on, and a kernel that was searched
        again has another final: only a champion that is proven faster in it takes the place of the
        schedule that stands.
        """
        self._note(self.quick_finals(self.contests))
        try:
            self.progress(
                Finalising(
                    kernels=self._expected(),
                    interrupted=self.interrupted,
                    settled=self.settled,
                )
            )
            while self._decided_all() and self._searched_on():
                pass
            self._tell_left()
        except KeyboardInterrupt:
            self.interrupted = True
        return self.finals

    def _decided_all(self) -> bool:
        """Decides each kernel that waits; returns whether there is no hurry after that."""
        while waiting := self._in_time(self._waiting()):
            self._next(waiting)
            if not self.interrupted and (left_s := self._left_s) is not None:
                through = (n for n, c in enumerate(self.contests) if self.decided.covers(c))
                self.searching.go_on(left_s, frozenset(through))
                self.interrupted = self.searching.interrupted
        return not self.interrupted

    def _searched_on(self) -> bool:
        """Searches with what is left of the budget; returns whether there was anything to do."""
        if (left_s := self._left_s) is None:
            return False
        found = self.searching.go_on_with_all(left_s)
        self.interrupted = self.searching.interrupted
        quick = self.quick_finals(self.contests)
        self._note({n: f for n, f in quick.items() if n not in self.finals})
        return found

    @property
    def _left_s(self) -> float | None:
        """The seconds that are left of the budget; None where no seconds are limited."""
        return None if self.budget_s is None else self.budget_s - self.clock()

    def _waiting(self) -> list[int]:
        """The kernels that have a champion and have had no final since it was found, those first
        whose champions save the program the most time.
        """

        def gain_s(n: int) -> float:
            contest = self.contests[n]
            return contest.task.weight * (contest.default_s - contest.tuner.best_s)

        ready = (n for n, c in enumerate(self.contests) if c.tuner.champions(1))
        waiting = (n for n in ready if not self.decided.covers(self.contests[n]))
        return sorted(waiting, key=gain_s, reverse=True)

    def _in_time(self, waiting: list[int]) -> list[int]:
        """Those of the kernels that wait for which there is time: whoever ended the search with
        Ctrl-C waits for seconds, not for all.  Nothing is timed beside what Ctrl-C has given up.
        """
        if not self.interrupted:
            return waiting
        if not over_within(self._hurry_left_s()):
            return []
        left_s = self._hurry_left_s()
        return [n for n in waiting if self.reserve.hurried_s(self.contests[n]) <= left_s]

    def _hurry_left_s(self) -> float:
        """The seconds that finals in a hurry have left; they begin when this is first asked."""
        if self._hurried_from_s is None:
            self._hurried_from_s = self.clock()
        return max(0.0, self._hurried_from_s + HURRY_S - self.clock())

    def _expected(self) -> int:
        """The finals that there is time for, if each takes what it is expected to take."""
        waiting = self._waiting()
        if not self.interrupted:
            return len(waiting)
        left_s, found = self._hurry_left_s(), 0
        for n in self._with_hope(waiting):
            took_s = self.reserve.hurried_s(self.contests[n])
            if took_s <= left_s:
                left_s, found = left_s - took_s, found + 1
        return found

    def _with_hope(self, waiting: Sequence[int]) -> list[int]:
        """The others have no final where there is no time."""
        return [n for n in waiting if not is_hopeless(self.contests[n])]

    def _tell_left(self) -> None:
        """Says of each kernel that had no time after Ctrl-C why that is."""
        reason = STILL_AT_WORK if is_anything_left() else TOO_LONG
        for n in self._with_hope(self._waiting()) if self.interrupted else ():
            self.progress(KernelSkipped(label=self.contests[n].task.label, reason=reason))

    def _next(self, waiting: Sequence[int]) -> None:
        """Decides the first of the waiting kernels, where there is time for it."""
        n, start_s = waiting[0], self.clock()
        contest = self.contests[n]
        pairs = self.reserve.pairs(
            [self.contests[k] for k in waiting], start_s, hurried=self.interrupted
        )
        if not pairs and not is_hopeless(contest):
            self.progress(KernelSkipped(label=contest.task.label, reason=TOO_LATE))
        found = self._final(contest, pairs) if pairs else None
        self.reserve.learn(contest, pairs, self.clock() - start_s)
        self._take_back_wrong(contest)
        before = self._before(n)
        stands = decisive(found, before) if found else before
        self._note({n: stands})
        if stands and stands is found:
            self.database.record_final(self.run, contest.task.kernel, found)

    def _note(self, finals: Mapping[int, Final | None]) -> None:
        for n, stands in finals.items():
            self.finals[n] = stands
            self.reserve.note(self.contests[n], stands)

    def _take_back_wrong(self, contest: Contest) -> None:
        """Takes back the schedule that stands where it proved wrong, by itself, in this run: what
        is recorded of it would be used, whoever else is proven faster or not.
        """
        stands = self._standing(contest)
        if stands is not None and contest.tuner.is_wrong(stands):
            key = contest.task.kernel.key
            program = program_of(self.database, self.run)
            take_back(
                self.database,
                key,
                WRONG_NOW,
                program=program,
                numerics=self.numerics,
                **self.under,
            )

    def _before(self, n: int) -> Final | None:
        """The earlier final of a kernel in this run; None where its schedule has failed since."""
        before = self.finals.get(n)
        failed = before is not None and self.contests[n].tuner.has_failed(before.schedule)
        return None if failed else before

    def _final(self, contest: Contest, pairs: int) -> Final | None:
        """The final of a kernel; None where it raises an error, which leaves this kernel undecided
        and does not end the run.
        """
        try:
            stands = self._standing(contest)
            return final(contest, self.builder, self.referee, pairs, stands, self.keep)
        except Exception as error:
            self.progress(KernelSkipped(label=contest.task.label, reason=reason_alone(error)))
            return None

    def _standing(self, contest: Contest) -> Schedule | None:
        """The schedule that an earlier run decided for; None where that is the default."""
        key = contest.task.kernel.key
        program = program_of(self.database, self.run)
        found = decision(self.database, key, numerics=self.numerics, program=program, **self.under)
        return found.schedule if found.schedule != DEFAULT else None


def decisive(found: Final, before: Final | None) -> Final:
    """Which of two finals of a kernel in one run decides; `before` is the earlier one, if any.

    The later one replaces it in the records, and is often made of fewer pairs.  So it decides where
    another schedule won in it, in which the earlier one took part; else as between two runs, where
    what proves nothing, or was made in a hurry, does not overrule a schedule that is proven faster.
    """
    if before is None or (found.won and found.schedule != before.schedule):
        return found
    return standing([found, before])

"""One tuning run: its searches against the defaults, its budget, its finals, and its result."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.modes import fast_time_s, slow_time_s
from hlotune.measure.trial import Measurement, Trial
from hlotune.measure.verification.agreement import Agreement
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.account import searched_s
from hlotune.search.budget.budget import ORACLE_SHARE, needed_s
from hlotune.search.budget.contest import Contest, Decided
from hlotune.search.budget.ledger import Ledger
from hlotune.search.budget.limits import Limits, less
from hlotune.search.budget.reserve import Reserve
from hlotune.search.budget.spending import Spending
from hlotune.search.contests import Contests, Device
from hlotune.search.experience import Experience
from hlotune.search.finals.closing import Closing
from hlotune.search.finals.comparing import Comparing, Verdict
from hlotune.search.finals.decide import Deciding
from hlotune.search.finals.finals import Keep, keep_nothing
from hlotune.search.finals.judged import judged, left_out
from hlotune.search.finals.missed_budget import missed_by
from hlotune.search.finals.quick import Quick
from hlotune.search.finals.within_budget import WithinBudget
from hlotune.search.openings import Openings
from hlotune.search.progress import Event, KernelSkipped, KernelStopped, Progress
from hlotune.search.result import TuneResult, kernel_result
from hlotune.search.resume_queries import has_begun
from hlotune.search.searchers.searcher import Make
from hlotune.search.tasks import Skipped, Task
from hlotune.search.workers import Builder
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.wrong_defaults import is_wrong

NO_TIME = "the budget has no time for it"
"""The reason of a kernel that is left out before its default was timed."""


@dataclass
class Session:
    """One tuning run: what all of its kernels share."""

    database: Database
    run: str
    under: Conditions
    target: Target
    peaks: Callable[[], Properties]
    """The target's peaks as known by then: a kernel that beats them has them measured anew."""
    builder: Builder
    runner: Device
    experience: Experience
    make: Make
    seed: int
    numerics: Numerics
    progress: Progress
    limits: Limits
    whole: Comparing
    start_s: float
    """The time of `now` when the run was asked for."""
    model_words: str = ""
    """What the cost model knows at the start, in words."""
    now: Callable[[], float] = time.monotonic
    """Seconds since some moment, without those that are in no budget."""
    away: Callable[[], float] = lambda: 0.0
    """Seconds for which this process was suspended."""
    probe: Callable[[], float] = lambda: 0.0
    """The seconds of a fixed probe beside the trials since the last call; 0 if it was not timed."""
    wrong_default: Callable[[], str] = lambda: ""
    """What is wrong with the results of the default program, as far as it was checked."""
    agreement: Callable[[Kernel], Agreement | None] = lambda kernel: None
    """How far the default's own result of a kernel is off; None where that is not known."""
    others: Callable[[], float | None] = lambda: None
    """The share of the processors that other processes took; None where that is not known."""
    keep: Keep = keep_nothing
    """Keeps the code of winners."""
    turns: Turns = field(default_factory=Turns)
    """Turns of the builder and the runner, which say how long they waited."""
    places: Sequence[Site] = ()
    """The sites of the program; without any no kernels are taken to share operations."""
    is_unrolled: bool = False
    """Whether kernels are cut from loops that the program's default has."""
    resumed: bool = False
    """Whether the run was interrupted before, and goes on with what is left of its budget."""
    interrupted: bool = False
    settled: bool = False
    """Whether the search ended before its budget."""
    _closed_from_s: float = 0.0
    """The time on the run's clock when its last batch had ended."""
    _searched: bool = False
    """Whether there was any batch."""
    _preparing_s: float = 0.0
    """How long preparing the whole program took."""
    _reserve: Reserve | None = None
    _skipped: list[tuple[str, str]] = field(default_factory=list)
    """Label and reason of each kernel that was told to be skipped or stopped."""

    @property
    def passed_s(self) -> float:
        """The seconds that count against the budget."""
        return self.now() - self.start_s

    @property
    def wall_s(self) -> float:
        """The wall-clock seconds, with those of waiting and of being suspended."""
        return self.passed_s + self.turns.waited_s + self.away()

    @cached_property
    def _kernels(self) -> Contests:
        return Contests(
            database=self.database,
            run=self.run,
            under=self.under,
            target=self.target,
            peaks=self.peaks,
            builder=self.builder,
            runner=self.runner,
            experience=self.experience,
            make=self.make,
            seed=self.seed,
            numerics=self.numerics,
            resumed=self.resumed,
            agreement=self.agreement,
            probe=self.probe,
            clock=lambda: self.passed_s,
            tell=self._tell,
        )

    @cached_property
    def _openings(self) -> Openings:
        return Openings(
            kernels=self._kernels,
            seconds=self.limits.seconds,
            passed_s=lambda: self.passed_s,
            preparing_s=lambda: self._preparing_s,
            tell=self._tell,
            model_words=self.model_words,
        )

    def tuned(self, name: str, tasks: Sequence[Task], skipped: Sequence[Skipped]) -> TuneResult:
        """Searches and compares; the whole program is not measured yet."""
        for skip in skipped:
            self._tell(KernelSkipped(label=skip.label, reason=skip.reason))
        contests, opening = self._openings.contests(tasks)
        self.interrupted = self.interrupted or self._openings.interrupted
        prepared_s = self.passed_s - searched_s(c.tuner.account for c in contests)
        decided = Decided()
        reserve = Reserve(
            contests, self.limits.seconds, self.whole, decided, places=self.places,
            is_unrolled=self.is_unrolled,
        )  # fmt: skip
        self._reserve, quick = reserve, self._quick(tasks, reserve)
        spending = Spending(
            contests, less(self.limits, prepared_s), self._tell, self.peaks, self.now, reserve.due,
            rivals=lambda: self._openings.rivals(contests),
            another_s=reserve.another_s, target=self.target, opening=opening,
            prepare=self._prepare_whole, quickly=quick.decide, decided=decided,
        )  # fmt: skip
        if not self.interrupted:
            spending.run()
            self.interrupted, self.settled = spending.interrupted, spending.is_settled
        finals, ledger = self._finals(contests, reserve, spending, quick), spending.ledger
        starved = not self.interrupted and spending.is_starved
        for task in opening.waiting if not self.interrupted else ():
            self._tell(KernelSkipped(label=task.label, reason=NO_TIME))
        return replace(
            self._result(name, tasks, contests, finals, ledger),
            needed_s=needed_s(len(tasks), prepared_s, reserve.all_s) if starved else None,
        )

    def _result(
        self,
        name: str,
        tasks: Sequence[Task],
        contests: Sequence[Contest],
        finals: Mapping[int, Final | None],
        ledger: Ledger,
    ) -> TuneResult:
        """The result of the search, with kernels in the order of the program."""
        places = {t.kernel: n for n, t in enumerate(tasks)}
        order = sorted(
            range(len(contests)), key=lambda n: places.get(contests[n].task.kernel, len(tasks))
        )
        return TuneResult(
            program_name=name,
            database=self.database.path,
            run=self.run,
            kernels=tuple(
                kernel_result(contests[n], finals.get(n), ledger.trials(n), ledger.failed(n))
                for n in order
            ),
            trials=ledger.trials(),
            known_trials=sum(c.known_trials for c in contests),
            wall_s=self.wall_s,
            probe_s=tuple(e.probe_s for c in contests for e in c.tuner.account if e.probe_s),
            interrupted=self.interrupted,
            skipped=tuple(self._skipped),
        )

    def finished(self, result: TuneResult) -> TuneResult:
        """Compares the whole program where anything was won, and closes the run.

        Champions that are to blame for wrong results of the program are taken back, and the rest is
        compared again.  Where none is to blame the run ends all the same, and the result says it.
        An interrupted run stays open and is not measured any further.
        """
        closing = Closing(
            database=self.database,
            run=self.run,
            numerics=self.numerics,
            under=self.under,
            wrong_defaults=frozenset(k.key for k in result.kernels if is_wrong(k.default_error)),
            is_unrolled=self.is_unrolled,
            places=self.places,
            is_long=lambda: self.whole.is_long,
            tell=self.progress,
        )
        verdict = Verdict(interrupted=self.interrupted)
        try:
            # Higher where a kernel beat them.
            self.database.keep_properties(self.target, self.peaks())
            if not self.interrupted:
                within = self._within_budget
                verdict = closing.verdict(result, within.compared, within.is_faster)
        except KeyboardInterrupt:
            verdict = Verdict(interrupted=True)
        for event in left_out(result, verdict):
            self.progress(event)
        result = replace(
            result,
            wall_s=self.wall_s,
            waited_s=self.turns.waited_s,
            away_s=self.away(),
            others_share=self.others(),
            overrun=self.overrun,
            wrong_default=self.wrong_default(),
        )
        closed = closing.closed(judged(result, verdict), verdict.whole, self.progress)
        return replace(closed, database=self.database.path)

    @property
    def overrun(self) -> str:
        """By how much and where the budget was missed; empty where it was kept."""
        budget_s, from_s = self.limits.seconds, self._closed_from_s
        return missed_by(budget_s, self.passed_s, from_s, searched=self._searched)

    @property
    def _oracle_s(self) -> float | None:
        """The seconds that the oracle has for the whole program; None if no seconds are limited."""
        return None if self.limits.seconds is None else ORACLE_SHARE * self.limits.seconds

    @property
    def _within_budget(self) -> WithinBudget:
        assert self._reserve is not None, "a run is closed after it has tuned"
        return WithinBudget(
            whole=self.whole, reserve=self._reserve, passed_s=lambda: self.passed_s,
            oracle_s=self._oracle_s,
        )  # fmt: skip

    @property
    def _left_s(self) -> float:
        """The seconds that are left of the budget; infinite where none are limited."""
        return (self.limits.seconds or inf) - self.passed_s

    def _prepare_whole(self) -> None:
        """Prepares the whole program behind the first batch, so that what is left for the others is
        known.

        It does not where trials are limited, nor where no time is left: the program may never be
        compared then.
        """
        late = self.passed_s >= (self.limits.seconds or inf)
        if self._oracle_s is not None and not late:
            start_s = self.passed_s
            self.whole.prepare(self._oracle_s)
            self._preparing_s = self.passed_s - start_s

    def _tell(self, event: Event) -> None:
        """Passes an event on, and keeps what it says of a kernel that is left alone."""
        if isinstance(event, KernelSkipped | KernelStopped):
            self._skipped.append((event.label, event.reason))
        self.progress(event)

    def _quick(self, tasks: Sequence[Task], reserve: Reserve) -> Quick:
        """Decides kernels by their first candidates, as long as nothing else needs the time."""
        numbers = {t.kernel: n for n, t in enumerate(tasks)}
        keys = (t.kernel.key for t in tasks if self.resumed)
        begun = frozenset(key for key in keys if has_begun(self.database, self.run, key))

        def opened(task: Task, default: Measurement, trial: Trial) -> Contest:
            samples_s = default.samples_s
            default_s, slow_s = fast_time_s(samples_s), slow_time_s(samples_s)
            tuner = self._kernels.tuner(numbers[task.kernel], task, default_s, begun=False)
            tuner.know([trial])
            return Contest(task, tuner, default_s, 0, None, slow_s)

        return Quick(
            model=self.experience.model,
            builder=self.builder,
            referee=self.runner,
            compile_together=self.runner.compile_together,
            keep=self.keep,
            left_alone=begun,
            database=self.database,
            run=self.run,
            opened=opened,
            done=reserve.decided,
            clock=lambda: self.passed_s,
            left_s=lambda: self._left_s - reserve.due().certain_s,
            cost_s=self._openings.cost_s,
        )

    def _finals(
        self, contests: Sequence[Contest], reserve: Reserve, spending: Spending, quick: Quick
    ) -> Mapping[int, Final | None]:
        deciding = Deciding(
            contests=contests,
            reserve=reserve,
            searching=spending,
            budget_s=self.limits.seconds,
            decided=reserve.decided,
            builder=self.builder,
            referee=self.runner,
            database=self.database,
            run=self.run,
            under=self.under,
            numerics=self.numerics,
            progress=self._tell,
            clock=lambda: self.passed_s,
            interrupted=self.interrupted,
            settled=self.settled,
            quick_finals=quick.finals_of,
            keep=self.keep,
        )
        self._closed_from_s = self.passed_s
        finals = deciding.decide()
        self.interrupted = deciding.interrupted
        # Batches come between finals and behind them, too.
        ended_s = (e.ended_s for c in contests for e in c.tuner.account)
        self._closed_from_s = max([self._closed_from_s, *ended_s])
        self._searched = bool(spending.ledger.spent)
        return finals

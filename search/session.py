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
from hlotune.schedules.errors import reason_alone
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.account import searched_s
from hlotune.search.budget.budget import DEFAULTS_SHARE, ORACLE_SHARE, Limits, less, needed_s
from hlotune.search.budget.contest import Contest, Decided, Opening
from hlotune.search.budget.opening_order import promised
from hlotune.search.budget.reserve import Reserve
from hlotune.search.budget.spending import RIVALS_UNTIL, Spending
from hlotune.search.contests import Contests, Device
from hlotune.search.experience import Experience
from hlotune.search.finals.closing import Closing, Comparing, Verdict, judged, left_out
from hlotune.search.finals.decide import Deciding
from hlotune.search.finals.finals import Keep, keep_nothing
from hlotune.search.finals.missed_budget import missed_by
from hlotune.search.finals.quick import Quick
from hlotune.search.finals.within_budget import WithinBudget
from hlotune.search.progress import Event, KernelSkipped, KernelStopped, Progress, Started
from hlotune.search.result import TuneResult, kernel_result
from hlotune.search.resume_queries import has_begun
from hlotune.search.searchers.searcher import Make
from hlotune.search.tasks import Skipped, Task, other_forms, task_of
from hlotune.search.tuner import Builder
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

    def tuned(self, name: str, tasks: Sequence[Task], skipped: Sequence[Skipped]) -> TuneResult:
        """Searches and compares; the whole program is not measured yet."""
        for skip in skipped:
            self._tell(KernelSkipped(label=skip.label, reason=skip.reason))
        contests, opening = self._contests(tasks)
        prepared_s = self.passed_s - searched_s(c.tuner.account for c in contests)
        decided = Decided()
        reserve = Reserve(
            contests, self.limits.seconds, self.whole, decided, places=self.places,
            is_unrolled=self.is_unrolled,
        )  # fmt: skip
        self._reserve, quick = reserve, self._quick(tasks, reserve)
        spending = Spending(
            contests, less(self.limits, prepared_s), self._tell, self.peaks, self.now, reserve.due,
            rivals=lambda: self._rivals(contests),
            another_s=reserve.another_s, target=self.target, opening=opening,
            prepare=self._prepare_whole, quickly=quick.decide, decided=decided,
        )  # fmt: skip
        if not self.interrupted:
            spending.run()
            self.interrupted, self.settled = spending.interrupted, spending.is_settled
        finals = self._finals(contests, reserve, spending, quick)
        starved = not self.interrupted and spending.is_starved
        for task in opening.waiting if not self.interrupted else ():
            self._tell(KernelSkipped(label=task.label, reason=NO_TIME))
        places = {t.kernel: n for n, t in enumerate(tasks)}
        order = sorted(
            range(len(contests)), key=lambda n: places.get(contests[n].task.kernel, len(tasks))
        )
        return TuneResult(
            program_name=name,
            database=self.database.path,
            run=self.run,
            kernels=tuple(
                kernel_result(contests[n], finals.get(n), spending.trials(n), spending.failed(n))
                for n in order
            ),
            trials=spending.trials(),
            known_trials=sum(c.known_trials for c in contests),
            wall_s=self.wall_s,
            probe_s=tuple(e.probe_s for c in contests for e in c.tuner.account if e.probe_s),
            interrupted=self.interrupted,
            needed_s=needed_s(len(tasks), prepared_s, reserve.all_s) if starved else None,
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

    def _contests(self, tasks: Sequence[Task]) -> tuple[list[Contest], Opening]:
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
            self._kernels.meet(tasks)
            before = [self._kernels.begun_s(t) for t in tasks]
            numbers = {t.kernel: n for n, t in enumerate(tasks)}

            def contest(task: Task) -> Contest | None:
                n = numbers[task.kernel]
                return self._kernels.opened(n, task, recorded[n], before[n])

            def turn(task: Task) -> tuple[bool, float]:
                guess_s, least_s = self._kernels.guess_s(task), self._kernels.least_s(task)
                share = promised(guess_s, least_s, task.weight)
                return before[numbers[task.kernel]] is None, -share

            early_s = DEFAULTS_SHARE * (self.limits.seconds or inf)
            opening = Opening(
                sorted(tasks, key=turn),
                contest,
                is_early=lambda: self.passed_s - self._preparing_s <= early_s,
            )
            timed = sum(s is not None for s in before)
            at_first = len(tasks) if self.limits.seconds is None else max(1, timed)
            while len(contests) < at_first and (found := opening.next(lambda: self.passed_s)):
                contests[numbers[found.task.kernel]] = found
            self.experience.learn()
        except KeyboardInterrupt:
            self.interrupted = True
        return [contests[n] for n in sorted(contests)], opening

    def _rivals(self, contests: Sequence[Contest]) -> list[Contest]:
        """Contests of other forms of kernels that are no faster than their defaults by now.

        Those of the kernels that take most of the program come first.
        """
        losing = [c for c in contests if c.tuner.best_s >= c.default_s and c.task.rivals]
        losing.sort(key=lambda c: -c.default_s * c.task.weight)
        known = {c.task.kernel for c in contests}
        found: list[Contest] = []
        for site in other_forms([c.task for c in losing], known):
            if self.passed_s > RIVALS_UNTIL * (self.limits.seconds or inf):
                break
            try:
                task = task_of(site, self.target, self.numerics)
            except Exception as error:
                self._tell(KernelSkipped(label=site.label, reason=reason_alone(error)))
                continue
            before_s = self._kernels.begun_s(task)
            trials = self._kernels.recorded(site.kernel, len(contests))
            place = len(contests) + len(found)
            contest = self._kernels.opened(place, task, trials, before_s)
            found += [contest] if contest else []
        return found

    def _begun(self, tasks: Sequence[Task]) -> list[list[Trial]]:
        """The known trials of each kernel; reports how many there are."""
        known = [self._kernels.recorded(t.kernel, len(tasks)) for t in tasks]
        own = sum(map(self._kernels.own_trials, tasks))
        self.progress(
            Started(
                kernels=len(tasks),
                known_trials=sum(map(len, known)) - own,
                own_trials=own,
                model=self.model_words,
            )
        )
        return known

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
        self._searched = bool(spending.spent)
        return finals

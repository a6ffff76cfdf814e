"""The end of a run: the whole program beside the default, and what follows for its champions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Protocol

from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.search.progress import Finished, KernelSkipped, Progress
from hlotune.search.result import TuneResult
from hlotune.search.resume_queries import is_finished
from hlotune.tuning_logs import own_runs
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import own_final
from hlotune.tuning_logs.finals import Final, Summary, Whole
from hlotune.tuning_logs.revoke import SLOWER, bar_wrong, take_back, take_back_wrong

FAR_BEHIND = 1.25
"""A champion that alone takes so many times as long as the default is not tried together with
others.
"""
FAR_BEHIND_UNROLLED = 2.0
"""The same where the default is XLA's of a loop that is unrolled, and not what the program has."""
WRONG_TOGETHER = "tried with the other kernels, its champion makes the program wrong"
"""Why a champion that is not proven faster alone stays out of a program."""
PROMISING = 0.05
"""Where nothing is proven faster alone, champions are tried together if they would save so much of
the time of all kernels.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of comparing the whole program."""

    whole: Whole | None = None
    """None where it was not compared, or not to the end."""
    wrong: tuple[str, ...] = ()
    """Keys of kernels whose champions were to blame for wrong results, and were taken back."""
    wrong_sites: tuple[str, ...] = ()
    """The sites of these kernels in the program."""
    slower: tuple[str, ...] = ()
    """Keys of kernels that went back to their defaults, because the program is slower with them."""
    together: tuple[str, ...] = ()
    """Keys of kernels that are not proven faster alone, and with which the program is."""
    wrong_anyway: str = ""
    """What is wrong in the program though no champion is to blame."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Keys of kernels whose champions were tried with others and made the program wrong, with the
    reason; they keep their defaults.
    """
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Within:
    """The seconds that comparing a program of long calls may take."""

    usual_s: float
    proving_s: float
    """The same where its rounds prove something."""


ANY = Within(inf, inf)


class Comparing(Protocol):
    """Compares the whole program with the default."""

    def prepare(self, oracle_limit_s: float) -> None:
        """Does what can be done before there are champions; else `compare` does it."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether calls of the program take so long that there are few of them."""
        ...

    def due_s(self, timing_s: float, saved_s: float = 0.0, within: Within = ANY) -> float:
        """The seconds that a comparison is expected to take, where timing takes `timing_s` at most.
        Champions so far save the program `saved_s`.  Long calls have fewer rounds where all of it
        would take more than is `within`.
        """
        ...

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        """Times both for so many seconds at most; None where nothing was replaced.

        `also` are finals of kernels whose champions are put in too, by their keys.  Where `left_s`
        says how many seconds are left, no long call is made for which there are too few.

        Where nothing is prepared, the oracle has `oracle_limit_s`, or its usual time.  Raises
        WrongResult.
        """
        ...


CompareWhole = Callable[[Mapping[str, Final]], Whole | None]
"""Compares the whole program with the champions that won, and with some others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Takes back champions of a run where the whole program says so."""

    database: Database
    run: str
    numerics: Numerics
    under: Conditions
    wrong_defaults: frozenset[str] = frozenset()
    """Keys of kernels whose defaults are wrong: their champions stay, however slow they are."""
    is_unrolled: bool = False
    """Whether kernels were cut from loops that the default has: the default of such a kernel is
    XLA's of the unrolled loop, which the default of the program is not."""

    def verdict(self, result: TuneResult, compare_whole: CompareWhole) -> Verdict:
        """Decides what becomes of the kernels that won; Ctrl-C leaves it where it is.

        Where the program gains too little with these, the champions of undecided kernels are tried
        beside them: our threads and those of the default compiler keep one another from the
        processors where their kernels take turns.  Champions that are to blame for wrong results go
        back to the default, and so do those without which the program is proven faster; then the
        rest is compared again.  This ends, since at least one champion goes back each time.
        """
        found = Verdict()
        undecided = self._undecided(result)
        is_worth_it = self.is_unrolled or is_promising(result)
        if not result.won and not (undecided and is_worth_it):
            return found
        try:
            while True:
                now = self._once(compare_whole, undecided)
                undecided = {}
                found = replace(
                    now,
                    wrong=found.wrong + now.wrong,
                    wrong_sites=found.wrong_sites + now.wrong_sites,
                    slower=found.slower + now.slower,
                    together=found.together + now.together,
                    left_out={**found.left_out, **now.left_out},
                )
                if not now.wrong and not now.slower:
                    won = [k.key for k in result.won]
                    left = self._left_if_slower(now.whole, [*won, *found.together])
                    return replace(found, slower=found.slower + left)
        except KeyboardInterrupt:
            return replace(found, whole=None, interrupted=True)

    def _undecided(self, result: TuneResult) -> dict[str, Final]:
        """This run's finals of kernels whose champions are neither proven faster than the default
        nor far behind it.
        """
        far = FAR_BEHIND_UNROLLED if self.is_unrolled else FAR_BEHIND
        near = [k.key for k in result.kernels if not k.won and k.ratio * far >= 1]
        finals = {key: own_final(self.database, self.run, key) for key in near}
        return {key: final for key, final in finals.items() if final is not None}

    def _once(self, compare_whole: CompareWhole, undecided: Mapping[str, Final]) -> Verdict:
        """Compares once, or twice where undecided champions are tried.  Champions that are to blame
        are taken back, and barred where results are wrong.
        """
        try:
            whole = compare_whole({})
            fuller, left_out = None, dict[str, str]()
            if undecided and not _gains(whole):
                fuller, left_out = self._with_undecided(whole, compare_whole, undecided)
            found = fuller or whole
            return Verdict(
                whole=found,
                slower=self._taken_back(found.slower if found else ()),
                together=tuple(undecided) if fuller else (),
                left_out=left_out,
            )
        except WrongResult as error:
            wrong = take_back_wrong(
                self.database, error, run=self.run, numerics=self.numerics, **self.under
            )
            if not wrong:
                return Verdict(wrong_anyway=str(error))
            return Verdict(wrong=tuple(wrong), wrong_sites=error.sites)

    def _with_undecided(
        self, whole: Whole | None, compare_whole: CompareWhole, undecided: Mapping[str, Final]
    ) -> tuple[Whole | None, dict[str, str]]:
        """Records that the champions of undecided kernels are used in this program, where it is
        proven faster with them than the default, and than without them; None where it is not.

        Where the program is wrong with them, all stay out and those to blame are barred.  Returns
        their keys with the reason, or all keys where none of them is to blame alone.
        """
        try:
            fuller = compare_whole(undecided)
        except WrongResult as error:
            barred = bar_wrong(self.database, error, undecided, run=self.run)
            reason = f"{WRONG_TOGETHER}: {error}"
            return None, dict.fromkeys(barred or undecided, reason)
        if fuller is None or not _is_better(fuller, whole):
            return None, {}
        for key, final in undecided.items():
            together = replace(final, outcome="tuned together")
            self.database.record_final(self.run, self.database.kernel(key), together)
        return fuller, {}

    def _left_if_slower(self, whole: Whole | None, won: Sequence[str]) -> tuple[str, ...]:
        """Leaves a program to the default compiler where its champions proved to slow it down."""
        if whole is None or whole.paired is None or whole.paired.high >= 1:
            return ()
        return self._taken_back(won)

    def _taken_back(self, slower: Sequence[str]) -> tuple[str, ...]:
        """Takes champions back; returns the keys of those that stood.  Their trials stay known, so
        that the next run compares them again.
        """
        return tuple(
            key
            for key in slower
            if key not in self.wrong_defaults
            and take_back(
                self.database, key, SLOWER, run=self.run, numerics=self.numerics, **self.under
            )
        )

    def closed(self, result: TuneResult, whole: Whole | None, progress: Progress) -> TuneResult:
        """Records that the run has finished, unless it was interrupted, and reports it.

        Until that is recorded, Ctrl-C interrupts the run, which can then be resumed.
        """
        try:
            if not result.interrupted:
                self.database.finish_run(self.run, summary(result, whole))
                own_runs.forget(self.run)
            progress(finished_event(result))
        except KeyboardInterrupt:
            return replace(result, interrupted=not is_finished(self.database, self.run))
        return result


def _gains(whole: Whole | None) -> bool:
    """Whether a program is proven faster, and gains at least half of what its kernels promise."""
    return bool(whole and whole.paired and whole.paired.low > 1 and not whole.falls_short)


def _is_better(fuller: Whole, whole: Whole | None) -> bool:
    """Whether a program with more kernels of ours is proven faster than the default, and than the
    program without these, where that is proven faster itself.
    """
    if fuller.paired is None or fuller.paired.low <= 1:
        return False
    before = whole.paired if whole else None
    return before is None or before.low <= 1 or fuller.paired.low > before.high


def is_promising(result: TuneResult) -> bool:
    """Whether champions that are not proven faster would save a part of the time of all kernels."""
    gains_s = (k.weight * (k.default_s - k.best_s) for k in result.kernels if k.best_s is not None)
    gained_s = sum(max(0.0, s) for s in gains_s)
    return gained_s > PROMISING * sum(k.weight * k.default_s for k in result.kernels)


def judged(result: TuneResult, verdict: Verdict) -> TuneResult:
    """The result of the kernels with what the comparison of the whole program says."""
    lost = {*verdict.wrong, *verdict.slower}
    won = {k.key for k in result.won}.union(verdict.together) - lost
    result = replace(
        result,
        kernels=tuple(replace(k, won=k.key in won) for k in result.kernels),
        interrupted=result.interrupted or verdict.interrupted,
        wrong=verdict.wrong,
        wrong_sites=verdict.wrong_sites,
        wrong_anyway=verdict.wrong_anyway,
        unproven=verdict.whole.unproven if verdict.whole else "",
        skipped=result.skipped + tuple((e.label, e.reason) for e in left_out(result, verdict)),
    )
    if verdict.whole is None or (paired := verdict.whole.paired) is None:
        return result
    return replace(result, speedup=paired.speedup, speedup_low=paired.low, speedup_high=paired.high)


def left_out(result: TuneResult, verdict: Verdict) -> list[KernelSkipped]:
    """The kernels whose champions stay out of the program because it is wrong with them."""
    reasons = verdict.left_out
    return [
        KernelSkipped(label=k.label, reason=reasons[k.key])
        for k in result.kernels
        if k.key in reasons
    ]


KEPT = 1.05
"""A budget is missed by a run that takes more than so many times its seconds."""
NOTHING_S = 0.05
"""Less time than this is not mentioned."""


def missed_by(
    budget_s: float | None, passed_s: float, closed_from_s: float, *, searched: bool
) -> str:
    """By how much a budget was missed, and in which part of the run; empty where it was kept, or
    there is none.

    `closed_from_s` is how much of the time had passed when the last batch had ended; `searched`
    says whether there were any batches.
    """
    if budget_s is None or passed_s <= KEPT * budget_s:
        return ""
    over = f"{passed_s - budget_s:.1f} s over the budget of {budget_s:g} s: "
    closing_s = passed_s - closed_from_s
    closing = f"comparing champions and the program with the default took {closing_s:.1f} s"
    if searched:
        return f"{over}{closing}, after batches that ended at {closed_from_s:.1f} s"
    preparing = f"preparing took {closed_from_s:.1f} s, and there was no batch"
    return over + (preparing if closing_s < NOTHING_S else f"{preparing}; {closing}")


def summary(result: TuneResult, whole: Whole | None) -> Summary:
    return Summary(
        wall_s=result.wall_s,
        waited_s=result.waited_s,
        away_s=result.away_s,
        others_share=result.others_share,
        overrun=result.overrun,
        fastest_probe_s=min(result.probe_s, default=None),
        slowest_probe_s=max(result.probe_s, default=None),
        whole=whole.paired if whole else None,
        error=whole.error if whole else None,
        default_error=whole.default_error if whole else None,
        wrong_default=result.wrong_default,
        unproven=result.unproven,
        skipped=result.skipped,
    )


def finished_event(result: TuneResult) -> Finished:
    return Finished(
        trials=result.trials,
        won=len(result.won),
        kernels=len(result.kernels),
        speedup=result.speedup,
        speedup_low=result.speedup_low,
        speedup_high=result.speedup_high,
        wall_s=result.wall_s,
        waited_s=result.waited_s,
        away_s=result.away_s,
        overrun=result.overrun,
        unproven=result.unproven,
    )

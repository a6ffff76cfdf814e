"""The end of a run: the whole program beside the default, and what follows for its champions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from statistics import median
from types import MappingProxyType
from typing import Protocol

from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.finals.forms import (
    FEW,
    candidates,
    close,
    confidence_of,
    is_much,
    is_promising,
    taken,
)
from hlotune.search.progress import Finished, FormTried, KernelSkipped, Progress, silent
from hlotune.search.result import TuneResult
from hlotune.search.resume_queries import is_finished
from hlotune.tuning_logs import own_runs
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import own_final
from hlotune.tuning_logs.finals import Final, Paired, Summary, Whole
from hlotune.tuning_logs.revoke import SLOWER, bar_wrong, take_back, take_back_wrong

WRONG_TOGETHER = "tried with the other kernels, its champion makes the program wrong"
"""Why a champion that is not proven faster alone stays out of a program."""


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

    def is_faster(
        self,
        base: Mapping[str, Final],
        more: Mapping[str, Final],
        confidence: float,
        limit_s: float,
        oracle_limit_s: float | None = None,
    ) -> bool:
        """Whether the program is proven faster with the champions of `more` than without them.

        Those that won, and those of `base`, are in both forms.  Raises WrongResult.
        """
        ...


CompareWhole = Callable[[Mapping[str, Final]], Whole | None]
"""Compares the whole program with the champions that won, and with some others."""
CompareForms = Callable[[Mapping[str, Final], Mapping[str, Final], float], bool | None]
"""Says whether the program is proven faster, with some confidence, with the champions of the second
argument put in beside those that won and those of the first; None where there is no time for it."""


def no_forms(
    base: Mapping[str, Final], more: Mapping[str, Final], confidence: float
) -> bool | None:
    """Stands where there is no time to compare forms of a program."""
    return None


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
    tell: Progress = silent
    """Is told which forms of the program were compared."""

    def verdict(
        self,
        result: TuneResult,
        compare_whole: CompareWhole,
        is_faster: CompareForms = no_forms,
    ) -> Verdict:
        """Decides what becomes of the kernels that won; Ctrl-C leaves it where it is.

        Where it may matter, forms of the program are compared (`forms.py`): the champions of
        undecided kernels are tried in it, and those that won by little are left out.  Champions
        that are to blame for wrong results go back to the default, and so do those without which
        the program is proven faster; then the rest is compared again.  This ends, since at least
        one champion goes back each time.
        """
        found = Verdict()
        undecided: TuneResult | None = result
        if not result.won and not self._is_worth_it(result):
            return found
        try:
            while True:
                now = self._once(compare_whole, is_faster, undecided)
                undecided = None
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

    def _is_worth_it(self, result: TuneResult) -> bool:
        """Whether forms of a program are compared in which no champion won alone."""
        tried = candidates(result, None, is_unrolled=self.is_unrolled)
        are_few = self.is_unrolled or len(result.kernels) <= FEW
        return bool(tried) and (are_few or is_promising(result))

    def _undecided(self, result: TuneResult, whole: Whole | None) -> dict[str, Final]:
        """This run's finals of kernels whose champions are to be tried in the program; those come
        first that may take most of it.
        """
        time_s = whole.paired.tuned_time_s if whole and whole.paired else None
        tried = candidates(result, time_s, is_unrolled=self.is_unrolled)
        if _gains(whole) and not (time_s and is_much(tried, result, time_s)):
            return {}
        tried.sort(key=lambda k: -k.weight * k.default_s)
        finals = {k.key: own_final(self.database, self.run, k.key) for k in tried}
        return {key: final for key, final in finals.items() if final is not None}

    def _once(
        self,
        compare_whole: CompareWhole,
        is_faster: CompareForms,
        result: TuneResult | None,
    ) -> Verdict:
        """Compares once, and again with undecided champions where the program is faster with them.
        Champions that are to blame are taken back, and barred where results are wrong.

        Without a result nothing is tried beside the champions that stand.
        """
        try:
            whole = compare_whole({})
            if result is None:
                return Verdict(whole=whole, slower=self._taken_back(whole.slower if whole else ()))
            added, left_out = self._added(self._undecided(result, whole), is_faster, result)
            dropped = self._taken_back(self._dropped(result, added, is_faster))
            if added and not dropped:
                whole = compare_whole(added)
            return Verdict(
                whole=whole,
                slower=dropped or self._taken_back(whole.slower if whole else ()),
                together=tuple(added),
                left_out=left_out,
            )
        except WrongResult as error:
            wrong = take_back_wrong(
                self.database, error, run=self.run, numerics=self.numerics, **self.under
            )
            if not wrong:
                return Verdict(wrong_anyway=str(error))
            return Verdict(wrong=tuple(wrong), wrong_sites=error.sites)

    def _added(
        self, undecided: Mapping[str, Final], is_faster: CompareForms, result: TuneResult
    ) -> tuple[dict[str, Final], dict[str, str]]:
        """The undecided champions with which the program is proven faster, which is recorded: they
        are used in this program.

        Where it is wrong with some, all that were tried with these stay out, and those to blame are
        barred.  Returns the keys of these with the reason, or of all where none is to blame alone.
        """
        left_out = dict[str, str]()
        labels = {k.key: k.label for k in result.kernels}

        def with_more(base: Sequence[str], more: Sequence[str]) -> bool | None:
            tried = {key: undecided[key] for key in more}
            try:
                found = is_faster({key: undecided[key] for key in base}, tried, confidence)
            except WrongResult as error:
                barred = bar_wrong(self.database, error, tried, run=self.run)
                left_out.update(dict.fromkeys(barred or tried, f"{WRONG_TOGETHER}: {error}"))
                return None
            if found is not None:
                self.tell(FormTried(labels=tuple(labels[key] for key in more), is_faster=found))
            return found

        confidence = confidence_of(len(undecided))
        added = {key: undecided[key] for key in taken(list(undecided), with_more)}
        for key, final in added.items():
            together = replace(final, outcome="tuned together")
            self.database.record_final(self.run, self.database.kernel(key), together)
        return added, left_out

    def _dropped(
        self, result: TuneResult, added: Mapping[str, Final], is_faster: CompareForms
    ) -> tuple[str, ...]:
        """Keys of kernels that won alone by little, without which the program is proven faster."""
        labels = {k.key: k.label for k in close(result) if k.key not in self.wrong_defaults}
        found = {key: own_final(self.database, self.run, key) for key in labels}
        default = {key: replace(final, schedule=DEFAULT) for key, final in found.items() if final}
        confidence = confidence_of(len(default))

        def without(base: Sequence[str], more: Sequence[str]) -> bool | None:
            left = {key: default[key] for key in base}
            verdict = is_faster({**added, **left}, {key: default[key] for key in more}, confidence)
            if verdict is not None:
                names = tuple(labels[key] for key in more)
                self.tell(FormTried(labels=names, is_faster=verdict, without=True))
            return verdict

        return taken(list(default), without)

    def _left_if_slower(self, whole: Whole | None, won: Sequence[str]) -> tuple[str, ...]:
        """Leaves a program to the default compiler where its champions proved to slow it down."""
        if whole is None or whole.paired is None or not _is_slower(whole.paired):
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


def _is_slower(paired: Paired) -> bool:
    """Whether a tuned program is proven slower than the default in its fast mode, and is slower
    than that in both of its modes, as a user has them.
    """
    ratios = (d / t for d, t in zip(paired.default_s, paired.tuned_s, strict=True))
    return paired.high < 1 and median(ratios) < 1


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

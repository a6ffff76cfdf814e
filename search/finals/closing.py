"""The end of a run: the whole program beside the default, and what follows for its champions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from hlotune.hlo.sites.sites import Site
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.finals.comparing import CompareWhole, Verdict
from hlotune.search.finals.forms import CompareForms, apart, no_forms
from hlotune.search.finals.judged import finished_event, summary
from hlotune.search.finals.tried import Trying
from hlotune.search.progress import Progress, silent
from hlotune.search.result import TuneResult
from hlotune.search.resume_queries import is_finished
from hlotune.tuning_logs import own_runs
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.decisions import TOGETHER, decision, program_of
from hlotune.tuning_logs.finals import Paired, Whole
from hlotune.tuning_logs.revoke import SLOWER, take_back, take_back_wrong


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
    places: Sequence[Site] = ()
    """The sites of the program, which say what kernels share operations; without any none do."""
    is_long: Callable[[], bool] = lambda: False
    """Whether calls of the program take so long that there are few of them."""
    tell: Progress = silent
    """Is told which forms of the program were compared."""

    def verdict(
        self,
        result: TuneResult,
        compare_whole: CompareWhole,
        is_faster: CompareForms = no_forms,
    ) -> Verdict:
        """Decides what becomes of the kernels that won; Ctrl-C leaves it where it is."""
        found = self._verdict(result, compare_whole, is_faster)
        return replace(found, in_use=self._in_use(result))

    def _verdict(
        self, result: TuneResult, compare_whole: CompareWhole, is_faster: CompareForms
    ) -> Verdict:
        """Decides it, but for what is in use of earlier runs.

        Where it may matter, forms of the program are compared (`forms.py`): the champions of
        undecided kernels are tried in it, and those that won by little are left out.  Champions
        that are to blame for wrong results go back to the default, and so do those without which
        the program is proven faster; then the rest is compared again.  This ends, since at least
        one champion goes back each time.
        """
        found, forms = Verdict(), self._trying(result, is_faster)
        if not result.won and not forms.is_worth_it():
            return found
        try:
            untried: Trying | None = forms
            while True:
                now = self._once(compare_whole, untried)
                untried = None
                found = replace(
                    now,
                    wrong=found.wrong + now.wrong,
                    wrong_sites=found.wrong_sites + now.wrong_sites,
                    slower=found.slower + now.slower,
                    together=tuple(forms.added),
                    left_out=forms.left_out,
                )
                if not now.wrong and not now.slower:
                    won = [k.key for k in result.won]
                    ours = [*won, *found.together, *self._in_use(result)]
                    left = self._left_if_slower(now.whole, list(dict.fromkeys(ours)))
                    return replace(found, slower=found.slower + left)
        except KeyboardInterrupt:
            return replace(
                found, whole=None, interrupted=True,
                together=tuple(forms.added), left_out=forms.left_out,
            )  # fmt: skip

    def _trying(self, result: TuneResult, is_faster: CompareForms) -> Trying:
        return Trying(
            database=self.database, run=self.run, compare=is_faster, tell=self.tell,
            result=apart(result, self.places, is_unrolled=self.is_unrolled),
            stay=self.wrong_defaults, is_unrolled=self.is_unrolled, is_long=self.is_long,
            places=self.places,
        )  # fmt: skip

    def _in_use(self, result: TuneResult) -> tuple[str, ...]:
        """Keys of kernels that the program has since they were tuned together in an earlier run,
        which this one found nothing against, though it proved none of them faster.
        """
        program = program_of(self.database, self.run)
        decide = partial(
            decision, self.database, numerics=self.numerics, program=program, **self.under
        )
        found = {k.key: decide(k.key) for k in result.kernels if not k.won}
        finals = {key: d.final for key, d in found.items() if d.schedule != DEFAULT}
        return tuple(key for key, final in finals.items() if final and final.outcome == TOGETHER)

    def _once(
        self,
        compare_whole: CompareWhole,
        forms: Trying | None,
    ) -> Verdict:
        """Compares once, and again with undecided champions where the program is faster with them.
        Champions that are to blame are taken back, and barred where results are wrong.

        Without `forms` nothing is tried beside the champions that stand.
        """
        try:
            if forms is not None:
                forms.try_likeliest()
            at_first = dict(forms.added) if forms else {}
            whole = compare_whole(at_first)
            if forms is None:
                return Verdict(whole=whole, slower=self._taken_back(whole.slower if whole else ()))
            dropped = self._taken_back(forms.to_drop(whole))
            if forms.added != at_first and not dropped:
                whole = compare_whole(forms.added)
            return Verdict(
                whole=whole,
                slower=dropped or self._taken_back(whole.slower if whole else ()),
            )
        except WrongResult as error:
            program = program_of(self.database, self.run)
            wrong = take_back_wrong(
                self.database,
                error,
                program=program,
                run=self.run,
                numerics=self.numerics,
                **self.under,
            )
            if not wrong:
                return Verdict(wrong_anyway=str(error))
            return Verdict(wrong=tuple(wrong), wrong_sites=error.sites)

    def _left_if_slower(self, whole: Whole | None, won: Sequence[str]) -> tuple[str, ...]:
        """Leaves a program to the default compiler where its champions proved to slow it down."""
        if whole is None or whole.paired is None or not _is_slower(whole.paired):
            return ()
        return self._taken_back(won)

    def _taken_back(self, slower: Sequence[str]) -> tuple[str, ...]:
        """Takes champions back; returns the keys of those that stood.  Their trials stay known, so
        that the next run compares them again.
        """
        program = program_of(self.database, self.run)
        return tuple(
            key
            for key in slower
            if key not in self.wrong_defaults
            and take_back(
                self.database,
                key,
                SLOWER,
                program=program,
                run=self.run,
                numerics=self.numerics,
                **self.under,
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


def _is_slower(paired: Paired) -> bool:
    """Whether a tuned program is proven slower than the default in its fast mode, and is slower
    than that in both of its modes, as a user has them.
    """
    ratios = (d / t for d, t in zip(paired.default_s, paired.tuned_s, strict=True))
    return paired.high < 1 and median(ratios) < 1

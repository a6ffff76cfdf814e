"""The seconds of a budget that are put by for closing a run, as the run measures what it needs.

Closing is what comes after the batches: champions are built, verified thoroughly and compared with
their defaults; then the whole program is put together, checked and timed.  While batches run, so
much is put by as it takes to compare them all; how many pairs a final really has is decided by what
is left when its turn comes.  Each final says how long the others will take, and what they will not
need is for batches again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from statistics import mean, median
from types import MappingProxyType

from hlotune.hlo.sites.sites import Site
from hlotune.measure.timing.timing import CLEARLY, SELDOM
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.budget.budget import CLOSING_SHARE, FORMS_SHARE, PROVING_SHARE, WHOLE_SHARE
from hlotune.search.budget.closing_costs import UNKNOWN_FINAL_S, Costs, Due, final_s, finals_s
from hlotune.search.budget.contest import Contest, Decided
from hlotune.search.budget.limits import DEFAULT_BUDGET_S
from hlotune.search.finals.comparing import ANY, Comparing, Expected, Place, Within
from hlotune.search.finals.finals import FEWEST_PAIRS, PAIRS
from hlotune.search.finals.form_costs import FormCosts
from hlotune.search.finals.forms import AT_STAKE, CONFIDENCE_OF_FIRST, is_near, of_main_kind
from hlotune.search.finals.heats import BEHIND, CHAMPIONS, champions_met, heat_size
from hlotune.search.finals.missed_budget import LATE
from hlotune.tuning_logs.finals import Final

HOPELESS = 1.25
"""A champion so many times slower than the default by the search's own times gets few pairs."""
UNLIMITED_S = WHOLE_SHARE * DEFAULT_BUDGET_S
"""The seconds for timing the whole program where no seconds are limited: those of the default
budget.
"""
PUT_BY_PAIRS = 21
"""Time is put by for so many pairs of each final: they are enough for a verdict, and how long
finals take is known only roughly.  Where they turn out to take less, there are more pairs.
"""
FORM_TIMING_S = 2.0
"""The seconds that are put by for timing a form of the program beside another one, at most."""
OUTSIDE_S = 1.0
"""The seconds after the run: workers end, the report is printed, the interpreter ends."""


@dataclass
class Reserve:
    """The time that is put by for the end of one run; `budget_s` is None where trials are limited,
    and then there is time for everything.
    """

    contests: Sequence[Contest]
    budget_s: float | None
    whole: Comparing
    decided: Decided = field(default_factory=Decided)
    """The kernels that had their turn, which need no final."""
    _expected_s: float = 0.0
    """The seconds that the finals so far were expected to take; `_took_s` is what they took."""
    _took_s: float = 0.0
    compared_s: float = inf
    """What comparing the program with the default took the last time, once it was compared."""
    places: Sequence[Site] = ()
    """The sites of the program, which say what kind its kernels are of."""
    is_unrolled: bool = False
    """Whether kernels are cut from loops that the program's default has."""
    _stands: dict[str, Final | None] = field(default_factory=dict)
    """What stands of the finals of kernels, by their keys."""
    _taken: dict[frozenset[str], frozenset[Place]] = field(default_factory=dict, init=False)
    """The operations of the kernels that were asked for last, by their keys."""

    def due(self) -> Due:
        """The seconds that would be due if the batches ended now, with finals at the pace of those
        so far.
        """
        finals_s = self._finals_s(self.contests, PUT_BY_PAIRS)
        each = [(c, self._pace * s) for c, s in zip(self.contests, finals_s, strict=True)]
        left = [(c, s) for c, s in each if not self.decided.covers(c)]
        certain_s = sum(s for c, s in left if has_champion(c))
        waiting = [s for c, s in left if not has_champion(c)]
        usual_s = mean([s for _, s in left or each]) if each else 0.0
        whole_s = self.whole_s(WHOLE_SHARE * (self.budget_s or 0.0), certain_s)
        return Due(certain_s + whole_s + self.put_by_s, max(waiting, default=usual_s))

    @property
    def _pace(self) -> float:
        """The time that finals took over the time that they were expected to take."""
        return self._took_s / self._expected_s if self._expected_s else 1.0

    @property
    def all_s(self) -> float:
        """The seconds that are due if each kernel has a champion."""
        each = self._finals_s(self.contests, PUT_BY_PAIRS)
        finals_s = sum(each)
        whole_s = self.whole_s(WHOLE_SHARE * (self.budget_s or 0.0), finals_s)
        return finals_s + whole_s + self.put_by_s

    @property
    def again_s(self) -> float:
        """The seconds for comparing the program with the default once more: what it took the last
        time at most.
        """
        return min(self.whole_s(0.0) - OUTSIDE_S, self.compared_s)

    def form_costs(
        self, confidence: float, form: Mapping[str, Final] = MappingProxyType({})
    ) -> FormCosts:
        """What comparing two forms of the program takes (`finals/forms.py`): to compile and check
        one takes less than comparing the program with the default did, unless it leaves more to
        XLA.  `form` has finals of what stands there otherwise, those left to XLA with its schedule.
        """
        found = self.whole.form_costs(confidence, self._expected_of(form))
        if _left_to_xla(form):
            return found
        return replace(found, checking_s=min(found.checking_s, self.compared_s))

    def form_timing_s(
        self, confidence: float, passed_s: float, form: Mapping[str, Final] = MappingProxyType({})
    ) -> float | None:
        """The seconds to give for timing two forms of the program; None where there is no time for
        that, and then to compare the last one with the default.  `form` as in `form_costs`.
        """
        if self.budget_s is None:
            return UNLIMITED_S / 2
        left_s = self.budget_s - OUTSIDE_S - passed_s - self.again_s
        return self.form_costs(confidence, form).given_s(left_s)

    @property
    def put_by_s(self) -> float:
        """The seconds that are put by for one form of the program, beside those for comparing the
        program with the default.

        There are none where it takes more than its share of the budget, where calls take so long
        that rounds with the default come first, and where kernels of the program's main kind that
        may not win alone take little of its time.
        """
        if self.budget_s is None or self.whole.is_long or not self._may_be_mixed:
            return 0.0
        form_s = self.form_costs(CONFIDENCE_OF_FIRST).due_s(FORM_TIMING_S)
        return form_s if form_s <= FORMS_SHARE * self.budget_s else 0.0

    @property
    def _may_be_mixed(self) -> bool:
        """Whether kernels of one kind may be left to XLA beside some that are ours, as far as is
        known (`forms.likeliest`): those without a final may be either.
        """
        begun = [c for c in self.contests if has_champion(c)]
        times_s = {c.task.kernel.key: c.task.weight * c.default_s for c in begun}
        main = of_main_kind(times_s, self.places)
        may_win = {key for key in main if self._may_win(key)}
        may_lose = {key for key in main if self._may_be_tried(key)}
        if not may_win or not may_lose or len(may_win | may_lose) < 2:
            return False
        stake_s = sum(times_s[key] for key in may_lose)
        return stake_s >= AT_STAKE * sum(times_s.values())

    def _may_win(self, key: str) -> bool:
        final = self._stands.get(key)
        return key not in self._stands or (final is not None and final.won)

    def _may_be_tried(self, key: str) -> bool:
        """Whether a form of the program may be tried for a kernel: it may have lost, and not by
        far.
        """
        if key not in self._stands:
            return True
        final = self._stands[key]
        if final is None or final.won:
            return False
        return is_near(final.paired.speedup, is_unrolled=self.is_unrolled)

    def whole_s(self, timing_s: float, finals_s: float | None = None) -> float:
        """The seconds for the whole program, with champions where there are some, and for what
        follows.

        Where `finals_s` says what finals still take, a program of long calls has as few calls as
        leave closing its share of the budget.
        """
        within = ANY
        if finals_s is not None and self.budget_s is not None:
            others_s = self._took_s + finals_s + OUTSIDE_S
            shares = CLOSING_SHARE, PROVING_SHARE
            within = Within(*(share * self.budget_s - others_s for share in shares))
        return self.whole.due_s(timing_s, self._expected_of(), within) + OUTSIDE_S

    def _expected_of(self, form: Mapping[str, Final] = MappingProxyType({})) -> Expected:
        """What the champions so far would make of the program: those that are faster than their
        defaults, but for those whose final they lost; or of a form of it, as in `form_costs`.
        """
        left = _left_to_xla(form)
        faster = [
            c for c in self.contests
            if c.tuner.best_s < c.default_s and self._may_win(c.task.kernel.key)
            and c.task.kernel.key not in left
        ]  # fmt: skip
        keys = frozenset(c.task.kernel.key for c in faster) | form.keys() - left
        saved_s = sum(c.task.weight * (c.default_s - c.tuner.best_s) for c in faster)
        return Expected(saved_s=saved_s, replaced=self._places_of(keys))

    def _places_of(self, keys: frozenset[str]) -> frozenset[Place]:
        """The operations of some kernels, which are asked for again and again."""
        if keys not in self._taken:
            ours = [place for place in self.places if place.kernel.key in keys]
            found = frozenset((place.path, op) for place in ours for op in place.ops)
            self._taken = {keys: found}
        return self._taken[keys]

    def pairs(self, waiting: Sequence[Contest], passed_s: float, *, hurried: bool) -> int:
        """The pairs of samples in the final of the first kernel that waits for its own.

        There are as many as let all finals end in time.  There are 0 for a champion without hope
        when there is no time for it, and in a program of long calls for any champion when the
        fewest pairs do not fit in front of checking the program.  `hurried` says that there is no
        time, whatever the budget has left.
        """
        contest = waiting[0]
        left_s = 0.0 if hurried else inf if self.budget_s is None else self.budget_s - passed_s
        if is_hopeless(contest):
            return FEWEST_PAIRS if left_s > 0 else 0
        if self.budget_s is None or hurried:
            return FEWEST_PAIRS if hurried else PAIRS
        fewest_s = self._pace * sum(self._finals_s(waiting, FEWEST_PAIRS))
        after_s = left_s - self.whole_s(WHOLE_SHARE * self.budget_s, fewest_s) - self.put_by_s

        def fits(pairs: int) -> bool:
            return self._pace * sum(self._finals_s(waiting, pairs)) <= after_s

        found = next(filter(fits, range(PAIRS, FEWEST_PAIRS, -1)), FEWEST_PAIRS)
        return 0 if found == FEWEST_PAIRS and self._is_too_late(contest, left_s) else found

    def _is_too_late(self, contest: Contest, left_s: float) -> bool:
        """Whether a final would take what is left for checking a program of long calls.

        With any second left a final is made where what follows ends so late that the budget still
        counts as kept: the finals before it may have taken longer than expected, and it is often of
        a kernel that matters.
        """
        if not self.whole.is_long:
            return False
        if left_s <= 0:
            return True
        left_s += LATE * (self.budget_s or 0.0)
        checked_s = self.whole_s(0.0, inf)
        return self.hurried_s(contest) > left_s - checked_s

    def hurried_s(self, contest: Contest) -> float:
        """The seconds of the shortest final of a kernel."""
        return self._pace * sum(self._finals_s([contest], FEWEST_PAIRS))

    def another_s(self, contest: Contest) -> float:
        """The seconds of another final of a kernel that had one, should a batch find something
        better: one of few trials has few champions, and no heat.
        """
        asked = replace(costs(contest, PUT_BY_PAIRS), entrants=CHAMPIONS)
        found = final_s(asked, PUT_BY_PAIRS)
        return self._pace * (UNKNOWN_FINAL_S if found is None else found)

    def learn(self, contest: Contest, pairs: int, took_s: float) -> None:
        """Takes note of how long a final took: the others are expected to be as much longer or
        shorter than foreseen.

        With `pairs` 0 the kernel had no final, and will have none.
        """
        self.decided.note(contest)
        if pairs:
            self._expected_s += sum(self._finals_s([contest], pairs))
            self._took_s += took_s

    def note(self, contest: Contest, final: Final | None) -> None:
        """Takes note of what stands of a kernel's finals."""
        self._stands[contest.task.kernel.key] = final

    def _finals_s(self, of: Sequence[Contest], pairs: int) -> list[float]:
        """The seconds that the finals of some kernels are expected to take.

        A kernel without a batch is expected to take the mean of all kernels of the run, whether
        their finals are over or not, so that the expectation is the same before and after.
        """
        each = finals_s([costs(c, pairs) for c in self.contests], pairs)
        known = {c.task.kernel.key: s for c, s in zip(self.contests, each, strict=True)}
        return [known[c.task.kernel.key] for c in of]

    def ending(self, passed_s: Callable[[], float]) -> tuple[float, Callable[[], float] | None]:
        """The seconds that are left for timing the whole program, and what says whenever it is
        asked how many are left of the run; None where no seconds are limited.
        """
        if (budget_s := self.budget_s) is None:
            return UNLIMITED_S, None
        timing_s = max(0.0, budget_s - passed_s() - self.whole_s(0.0))
        return timing_s, lambda: budget_s - OUTSIDE_S - passed_s()


def costs(contest: Contest, pairs: int) -> Costs:
    """What closing one kernel costs.  With so few pairs as where time is short it has no heat."""
    took = contest.tuner.took
    near = contest.tuner.near(BEHIND)
    first, others = took.trials_s[:1], took.trials_s[1:]
    return Costs(
        alone_s=took.alone_s,
        default_s=contest.timing_s,
        call_s=contest.default_s,
        build_s=took.build_s,
        first_s=first[0] if first else None,
        slowest_s=max(others, default=0.0),
        usual_s=median(others) if others else 0.0,
        entrants=champions_met(contest.tuner, near),
        is_clear=CLEARLY * contest.tuner.best_s < contest.default_s,
        is_seldom=SELDOM * contest.tuner.best_s <= contest.default_s,
        crowd=heat_size(contest.tuner.usable, near) if pairs > FEWEST_PAIRS else 0,
    )


def _left_to_xla(form: Mapping[str, Final]) -> frozenset[str]:
    return frozenset(key for key, final in form.items() if final.schedule == DEFAULT)


def has_champion(contest: Contest) -> bool:
    return isfinite(contest.tuner.best_s)


def is_hopeless(contest: Contest) -> bool:
    """Whether a champion is far slower than the default by the search's own times."""
    return contest.tuner.best_s > HOPELESS * contest.default_s

"""Comparisons of the whole program at the end of a run, in what its budget has left for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from hlotune.search.budget.reserve import OUTSIDE_S, Reserve
from hlotune.search.finals.comparing import Comparing
from hlotune.search.finals.forms import Compared
from hlotune.tuning_logs.finals import Final, Whole


@dataclass(kw_only=True)
class WithinBudget:
    """Asks for comparisons as long as there is time for them."""

    whole: Comparing
    reserve: Reserve
    passed_s: Callable[[], float]
    """Seconds of the budget that have passed."""
    oracle_s: float | None
    """The seconds that the oracle has for the whole program; None if no seconds are limited."""

    def compared(self, also: Mapping[str, Final]) -> Whole | None:
        """None for the program with other champions too where it was compared without them, and
        there is no time to do that again.
        """
        left_s = (self.reserve.budget_s or inf) - OUTSIDE_S - self.passed_s()
        again = bool(also) and self.reserve.compared_s < inf
        if again and self.reserve.again_s > left_s:
            return None
        timing_s, left = self.reserve.ending(self.passed_s)
        start_s = self.passed_s()
        found = self.whole.compare(timing_s, self.oracle_s, also, left)
        self.reserve.compared_s = self.passed_s() - start_s
        return found

    def is_faster(
        self, base: Mapping[str, Final], more: Mapping[str, Final], confidence: float
    ) -> Compared | None:
        """None where there is no time to compare two forms of the program, and then its last one
        with the default.
        """
        timing_s = self.reserve.form_timing_s(confidence, self.passed_s(), {**base, **more})
        if timing_s is None:
            return None
        return self.whole.is_faster(base, more, confidence, timing_s, self.oracle_s)

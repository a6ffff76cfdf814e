"""How long comparing two forms of a program takes, and how much of a budget is given to it.

What is put by for a comparison, what is asked before it, and what it is given are read from here.
"""

from dataclasses import dataclass

from hlotune.deploy.timer import pair_s, proving_s

PAIRS = 60
"""The most pairs of samples of two forms of the program."""
LEAST_S = 1.0
"""Seconds for them, however late it is: the fewest pairs prove nothing as soon as one is disturbed.
"""
SPARE = 1.1
"""So many times as long is given as calls are known to take: with less they would prove nothing."""
CHECKS = 4
"""A form is compiled and checked in the time of so many calls, but for compiling itself."""


@dataclass(frozen=True, slots=True)
class FormCosts:
    """The seconds that comparing one form of a program with another one takes."""

    checking_s: float = 0.0
    """To compile and check it; the other one was."""
    least_s: float = 0.0
    """To time both in as few pairs as prove something, behind the calls that warm up."""
    most_s: float = 0.0
    """To time both in as many pairs as are ever made."""

    def due_s(self, timing_s: float) -> float:
        """All of them, where timing both takes `timing_s` if possible."""
        return self.checking_s + self._timing_s(timing_s)

    def given_s(self, left_s: float) -> float | None:
        """The seconds to give for timing both where `left_s` are left for forms: half of them, so
        that another one has its turn; None where these prove nothing.
        """
        timing_s = left_s - self.checking_s
        return self._timing_s(timing_s / 2) if SPARE * timing_s >= self.least_s else None

    def _timing_s(self, wanted_s: float) -> float:
        return min(max(self.least_s, wanted_s), self.most_s)


def form_costs(compile_s: float, call_s: float, confidence: float) -> FormCosts:
    """The costs of a form of a program whose default takes so long to compile and to call."""
    fewest_s = SPARE * proving_s(call_s, call_s, confidence)
    most_s = max(PAIRS * pair_s(call_s), fewest_s)
    return FormCosts(
        checking_s=compile_s + CHECKS * call_s,
        least_s=min(max(LEAST_S, fewest_s), most_s),
        most_s=most_s,
    )

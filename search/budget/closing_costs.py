"""What the final of a kernel will take, from what the kernel took before: pure formulas."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import mean

from hlotune.measure.timing.comparison import fewest_pairs
from hlotune.measure.timing.timing import AGREED_S, BRIEF_S, BRIEF_SHARE, FEW_S, MOST_BRIEF
from hlotune.measure.workers.runner import COMPARING_S

UNKNOWN_FINAL_S = 3.0
"""Expected time of a final before any kernel has been built and verified."""
SETS = 1.5
"""Champions are verified with so many times as many sets of inputs as a trial."""
SAMPLES = 80
"""So many samples take as long as compiling and timing the default: most of a sample is what puts
the caches into their state, and takes equally long for all kernels but those with long calls.
"""
OTHERS = 1.5
"""Comparing several champions takes so many times as long as the first candidate alone took: the
oracle answers for all of them at once, and the default is compiled once."""
LONG_CALLS = 2
"""Calls of a default that takes seconds, where candidates are many times as fast."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Wall-clock seconds that parts of one kernel's tuning took; None for a part that was not done
    in this run.
    """

    alone_s: float | None = None
    """Comparing the first candidate alone with the default, where that came before any batch."""
    default_s: float | None = None
    """Compiling and timing the default."""
    call_s: float = 0.0
    """One call of the default."""
    build_s: float | None = None
    """A candidate, where several are built at once."""
    first_s: float | None = None
    """Verifying and timing the first candidate, for which the oracle was asked."""
    slowest_s: float = 0.0
    """Verifying and timing the slowest of the other candidates in the first batch: algorithms that
    do more than reorder sums need answers of the oracle of their own.
    """
    usual_s: float = 0.0
    """Verifying and timing the median of these other candidates."""
    entrants: int = 3
    """How many champions are built, verified and timed."""
    is_clear: bool = False
    """Whether the best candidate is clearly faster than the default by the search's own times."""
    is_seldom: bool = True
    """Whether a default of long calls is slower by so much that it is called twice alone."""
    crowd: int = 0
    """How many candidates the heat has, each built once and measured twice; 0 without a heat."""


@dataclass(frozen=True, slots=True)
class Due:
    """The seconds that are due when the batches end."""

    certain_s: float
    """The finals of the kernels that have champions, and the whole program."""
    final_s: float
    """One more final, for a kernel that gets its first batch now."""


def final_s(costs: Costs, pairs: int) -> float | None:
    """Seconds of one kernel's final with so many pairs; None where it had neither a batch nor a
    final in this run.
    """
    if costs.build_s is None:
        return None
    heat_s = costs.crowd * (costs.build_s + 2 * costs.usual_s)
    if costs.alone_s is not None:
        return heat_s + costs.entrants * costs.build_s + OTHERS * costs.alone_s
    if costs.first_s is None:
        return None
    return heat_s + costs.entrants * costs.build_s + _comparing_s(costs, costs.first_s, pairs)


def _comparing_s(costs: Costs, first_s: float, pairs: int) -> float:
    """Seconds of verifying champions and timing them beside the default, by what a batch took."""
    verifying_s = SETS * (first_s + costs.slowest_s)
    # Where it was timed before the run was interrupted, XLA takes about as long as the oracle.
    default_s = first_s if costs.default_s is None else costs.default_s
    round_s = (1 + costs.entrants) * max(default_s / SAMPLES, costs.call_s)
    rounds_s = pairs * round_s
    if costs.is_clear:  # rounds of long calls end as they agree, calls before each among them
        pairs = min(pairs, ceil(max(AGREED_S / round_s, 2 * fewest_pairs(costs.entrants))))
        rounds_s = pairs * round_s
    elif pairs:  # else they go on where they were short beside the checks
        brief_s = max(BRIEF_S, BRIEF_SHARE * (verifying_s + default_s))
        rounds_s = max(rounds_s, min(brief_s, MOST_BRIEF * round_s))
    sampling_s = min(rounds_s, COMPARING_S)
    if costs.call_s >= FEW_S and costs.is_seldom:
        default_s, sampling_s = 0.0, LONG_CALLS * costs.call_s
    return verifying_s + default_s + sampling_s


def finals_s(costs: Sequence[Costs], pairs: int) -> list[float]:
    """Seconds of each kernel's final; those without a batch take the mean of the others."""
    known = [final_s(c, pairs) for c in costs]
    usual_s = mean([s for s in known if s is not None] or [UNKNOWN_FINAL_S])
    return [usual_s if s is None else s for s in known]

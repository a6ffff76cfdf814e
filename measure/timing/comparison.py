"""Which is faster: paired samples of the default and of candidates, and what they prove.

The samples of one round are taken one after another, so a slow minute of the machine is in all of
them, and cancels.  Each round gives a ratio, default over candidate.  The interval is the sign
test's: order statistics of the ratios, which hold the true median with at least the stated
confidence whatever the distribution of the noise, as long as rounds are independent of each other
and each sample is a measurement. A side that is slow on its own for some thirty rounds at a time,
as no slow minute of the machine is, breaks that: of sides that are equal otherwise one is then
called faster in a fifth of all comparisons, with 61 rounds in three tenths. A subject that is many
times as slow as all others is measured in two rounds alone (`timing.is_seldom`): which side is
faster is then as certain as these two rounds are, and the interval shows only how the faster side
varies.

Calls that take long may have fewer rounds than the sign test needs.  Then the interval is
the rank sum test's (F. Wilcoxon, 1945): if the sides differed by no factor, all orders of their
times would be equally likely, and of four rounds two orders in seventy have all times of one side
below all of the other's.  Three rounds have the interval of Student's t, of logarithms, where
either side may be the noisy one.  Where both have noise of one kind, a gain is claimed by chance in
2 of 100 comparisons at most, and in 6 where one side has noise and the other little, as of four
rounds (a test tries several kinds).  A default of two speeds beside a steady program is no noise to
so few rounds: slow in all three, it is taken for slow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import comb, exp, inf, log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING

from hlotune.measure.timing.modes import fast_time_s, modes
from hlotune.measure.timing.timing import ONCE_S
from hlotune.measure.trial import Failure, Measurement, Outcome

if TYPE_CHECKING:
    from hlotune.measure.verification.verify import Verdict

CONFIDENCE = 0.95
FEWEST_LONG = 3
"""Rounds of long calls from which on there is an interval with `CONFIDENCE`."""
STUDENT_T = 4.303
"""What a difference of two means of `FEWEST_LONG` values keeps to with `CONFIDENCE`, in units of
its standard error: Student's quantile for two degrees of freedom, the fewest that there are where
one side alone varies (B. L. Welch, 1947)."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of the default over time of a candidate: above 1 the candidate is faster.

    Or of another reference, such as the time that the same work takes at the machine's peak.
    """

    median: float
    low: float
    high: float

    @property
    def is_faster(self) -> bool:
        """Whether the interval excludes "not faster"."""
        return self.low > 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The default and candidates, timed in turns.  Sample i of each is of the same round."""

    default: Measurement
    candidates: tuple[Measurement | Failure, ...]
    behind: frozenset[int] = frozenset()
    """Numbers of candidates that did not meet the default, as another one was faster
    (`sifting.py`): their samples are of rounds without it."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A kernel and what the machine does no faster, in turns.  Sample i of both is of one round."""

    samples_s: tuple[float, ...]
    """The times of the kernel."""
    work_per_s: tuple[float, ...]
    """The rates of the other: operations of multiply-adds, or bytes read, a second."""

    @property
    def time_s(self) -> float:
        return median(self.samples_s)

    def share(self, work: int) -> Ratio:
        """What a kernel of so many operations, or bytes, reaches of the other's rate in the same
        rounds.
        """
        return ratio([work / rate for rate in self.work_per_s], self.samples_s)


def outcomes(
    verdicts: "Sequence[Verdict | Failure]",
    default: Measurement,
    samples_s: Sequence[tuple[float, ...]],
) -> Iterator[Outcome]:
    """What became of each candidate; `samples_s` are of those that were right, in their order."""
    waiting = iter(samples_s)
    for v in verdicts:
        if isinstance(v, Failure):
            yield v
        else:
            yield replace(
                default,
                samples_s=next(waiting),
                numerics=v.numerics,
                error=v.error,
                relative_error=v.relative_error,
            )


def ratio(
    default_s: Sequence[float], candidate_s: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """The ratio of paired times with its interval: `[0, inf]` where there are too few pairs."""
    ratios = sorted(d / c for d, c in zip(default_s, candidate_s, strict=True))
    rank = interval_rank(len(ratios), confidence)
    if rank:
        return Ratio(median(ratios), ratios[rank - 1], ratios[-rank])
    if min(default_s) >= ONCE_S and len(ratios) >= fewest_long_pairs(confidence):
        low, high = min(default_s) / max(candidate_s), max(default_s) / min(candidate_s)
        return Ratio(median(ratios), low, high)
    if min(default_s) >= ONCE_S and len(ratios) == FEWEST_LONG and confidence <= CONFIDENCE:
        return Ratio(median(ratios), *_of_three(default_s, candidate_s))
    return Ratio(median(ratios), 0.0, inf)


def _of_three(default_s: Sequence[float], candidate_s: Sequence[float]) -> tuple[float, float]:
    """The interval of the ratio of two samples of three times, by Student's t of logarithms.

    A side that is many times as slow was called twice, and its third time stands for none of its
    own (`timing.is_seldom`): the interval shows how the other side varies then.
    """
    sides = [[log(s) for s in side] for side in (default_s, candidate_s)]
    means = [fmean(side) for side in sides]
    squares = sum((x - m) ** 2 for side, m in zip(sides, means, strict=True) for x in side)
    off = STUDENT_T * sqrt(squares / (FEWEST_LONG - 1) / FEWEST_LONG)
    between = means[0] - means[1]
    return exp(between - off), exp(between + off)


def fewest_long_pairs(confidence: float = CONFIDENCE) -> int:
    """Pairs of long calls from which on there is an interval, of the times of both sides as two
    samples: four at 95 %.
    """
    return next(n for n in count(1) if 2 / comb(2 * n, n) <= 1 - confidence)


def speedup(
    default_s: Sequence[float], candidate_s: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """The ratio of default to candidate; of a default in two modes (`modes.py`) the slow one does
    not count, as `counted` has it.
    """
    return ratio(counted(default_s, candidate_s), candidate_s, confidence)


def counted(default_s: Sequence[float], candidate_s: Sequence[float]) -> tuple[float, ...]:
    """Samples of a default as they count beside those of a candidate, so that each pair counts.

    One in the slow mode counts as the time of the fast mode.  Where the candidate was slower in
    that round than it is in its own fast mode, so was the machine, and the fast mode would have
    been slower by as much: else the machine's slow minutes were taken off one side alone.
    """
    found = modes(default_s)
    if found is None:
        return tuple(default_s)
    usual_s = fast_time_s(candidate_s)
    return tuple(
        min(d, found.fast_s * max(1.0, c / usual_s)) if d >= found.below_s else d
        for d, c in zip(default_s, candidate_s, strict=True)
    )


def shared(contenders: int) -> float:
    """The confidence of each interval with which so many together hold with `CONFIDENCE`."""
    return 1 - (1 - CONFIDENCE) / contenders


def fewest_pairs(contenders: int) -> int:
    """Pairs from which on each of so many has an interval: six of one, eight of five."""
    return pairs_for(shared(contenders))


def pairs_for(confidence: float) -> int:
    """Pairs of calls of any length from which on there is an interval."""
    return next(n for n in count(1) if interval_rank(n, confidence))


def interval_rank(pairs: int, confidence: float) -> int:
    """The largest r such that the r-th smallest and largest of `pairs` values enclose the median.

    0 where no such pair of values has that confidence: below 6 pairs at 95 %.
    """
    tail, rank = 0.0, 0
    while tail + comb(pairs, rank) / 2**pairs <= (1 - confidence) / 2:
        tail += comb(pairs, rank) / 2**pairs
        rank += 1
    return rank

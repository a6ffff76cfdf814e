"""Which of several candidates meets the default, where there is time for few rounds.

The interval of one candidate of three has to allow for the two others: of nine rounds it is the
whole range of the ratios, so that one disturbed round leaves a candidate without a proof that is
half as fast again in all others.  The interval of a candidate alone leaves one out at either end,
and from twelve rounds on two.  So candidates run against one another first, in a round or three
without the default.  The fastest meets the default in rounds of its own, in the time that all of
them would have had.  Who is in these rounds was not chosen by them: their interval is that of one
candidate, and holds with its full confidence.

The least of so few times of a candidate counts: what disturbs a call makes it slower.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil

from hlotune.measure.timing.comparison import fewest_pairs, interval_rank, shared
from hlotune.measure.timing.timing import (
    AGREED_S,
    DEFAULT_EFFORT,
    FEW_S,
    MOST_BRIEF,
    Apart,
    Effort,
    Subject,
    always_apart,
    calls_a_sample,
    interleaved,
    warmed,
)
from hlotune.measure.trial import Clock as ClockName

LEFT_OUT = 2
"""Where the interval of each candidate leaves out so many rounds at either end, all candidates meet
the default."""
USUAL_ROUNDS, USUAL_ALONE = 9, 3
"""Where there is time for so many rounds of all candidates, there are so many without the default
first; else one."""
SPARE = 1.1
"""So many times as long as all would have had rounds may take where they leave out one more then:
most end long before, as all agree."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The rounds that a comparison is asked for, as `timing.interleaved` takes them."""

    pairs: int
    limit_s: float
    brief_s: float

    def less(self, gone_s: float) -> "Asked":
        """What is left of their time where so many seconds have gone by, for as many rounds."""
        return Asked(self.pairs, self.limit_s - gone_s, max(0.0, self.brief_s - gone_s))

    def expected(self, round_s: float, candidates: int) -> int:
        """The rounds of so many candidates that there is time for, where they do not agree."""
        brief = min(MOST_BRIEF, int(self.brief_s / round_s))
        in_time = ceil(self.limit_s / round_s)
        return max(fewest_pairs(candidates), min(max(self.pairs, brief), in_time))


@dataclass(frozen=True, slots=True)
class Met:
    """Samples of the default and of each candidate."""

    samples_s: tuple[tuple[float, ...], ...]
    behind: tuple[int, ...] = ()
    """The numbers of candidates that did not meet the default: another one was faster.  Their
    samples are of rounds without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """How subjects are timed."""

    clock: ClockName = "call"
    effort: Effort = DEFAULT_EFFORT
    apart: Apart = always_apart

    def rounds(
        self, subjects: Sequence[Subject], asked: Asked, known_s: dict[int, float]
    ) -> tuple[tuple[float, ...], ...]:
        """Rounds of a default with its candidates, no fewer than prove anything of so many."""
        least = fewest_pairs(max(1, len(subjects) - 1))
        return interleaved(
            subjects, pairs=max(asked.pairs, least), limit_s=asked.limit_s,
            brief_s=asked.brief_s, least=least, agreed_s=AGREED_S, known_s=known_s,
            clock=self.clock, effort=self.effort, apart=self.apart,
        )  # fmt: skip


def met(subjects: Sequence[Subject], asked: Asked, how: How, staying: int | None = None) -> Met:
    """Rounds of the default, which comes first, and of candidates.

    Args:
        staying: so many of the first candidates meet the default in any case; of the others the
            fastest alone does, where there is time for few rounds.  All of them do without it.
    """
    default, candidates = subjects[0], subjects[1:]
    if staying is None or len(candidates) - staying < 2:
        return Met(how.rounds(subjects, asked, {}))
    start_s = time.perf_counter()
    alone = Alone(candidates, staying, how)
    alone.go_on(1)
    default_s = warmed(default, FEW_S)
    round_s = alone.round_s(default_s, range(len(candidates)))
    warming_s = sum(map(ahead_s, (default_s, *alone.warm_s)))
    rounds = asked.less(warming_s).expected(round_s, len(candidates))
    if rounds >= enough(len(candidates)):
        known_s = {0: default_s, **{k + 1: s for k, s in enumerate(alone.warm_s)}}
        return Met(how.rounds(subjects, asked.less(time.perf_counter() - start_s), known_s))
    if rounds >= USUAL_ROUNDS:
        alone.go_on(USUAL_ALONE - 1)
    meeting = [*range(staying), alone.fastest()]
    left_s = warming_s + rounds * round_s - (time.perf_counter() - start_s)
    # A long call of the default is its first sample already, and is not made again; the fastest is
    # warmed up anew, as its calls so far have chosen it.
    left_s += default_s - ahead_s(default_s) / 2 - ahead_s(alone.warm_s[meeting[-1]])
    in_time = max(0, int(SPARE * left_s / alone.round_s(default_s, meeting)))
    pairs = whole_ranks(in_time, len(meeting))
    few = Asked(pairs, max(asked.limit_s, SPARE * left_s), 0.0)
    known_s = {0: default_s, **{k + 1: alone.warm_s[k] for k in range(staying)}}
    found = how.rounds([default, *(candidates[k] for k in meeting)], few, known_s)
    samples_s = dict(zip(meeting, found[1:], strict=True))
    behind = tuple(k for k in range(len(candidates)) if k not in meeting)
    return Met(
        (found[0], *(samples_s.get(k) or alone.samples_s(k) for k in range(len(candidates)))),
        behind,
    )


def ahead_s(call_s: float) -> float:
    """What warms up a subject whose calls take so long: of a long one the call is a sample."""
    return 2 * call_s if call_s < FEW_S else 0.0


def whole_ranks(rounds: int, candidates: int) -> int:
    """The fewest rounds whose intervals leave out as many at either end as those of so many, and
    no fewer than have one."""
    confidence = shared(candidates)
    rank = max(1, interval_rank(rounds, confidence))
    return next(n for n in count(1) if interval_rank(n, confidence) >= rank)


def enough(candidates: int) -> int:
    """Rounds from which on the interval of each of so many leaves out `LEFT_OUT` at either end."""
    return next(n for n in count(1) if interval_rank(n, shared(candidates)) > LEFT_OUT)


class Alone:
    """Rounds of candidates without the default, but for those that stay whatever they take."""

    def __init__(self, candidates: Sequence[Subject], staying: int, how: How) -> None:
        self._how, self._candidates = how, candidates
        self._tried = range(staying, len(candidates))
        self.warm_s = [warmed(c, FEW_S) for c in candidates]
        self._rounds: list[tuple[float, ...]] = []
        self._is_long = any(self.warm_s[k] >= FEW_S for k in self._tried)
        self.spent_s = sum(self.warm_s[k] for k in self._tried if self.warm_s[k] >= FEW_S)
        """What the rounds took; a long call ahead of them is the sample of the first."""

    def go_on(self, rounds: int) -> None:
        """Makes further rounds."""
        start_s = time.perf_counter()
        self._rounds += zip(
            *interleaved(
                [self._candidates[k] for k in self._tried], pairs=rounds, limit_s=0.0, least=rounds,
                known_s={n: self.warm_s[k] for n, k in enumerate(self._tried)},
                is_first=not self._rounds,
                clock=self._how.clock, effort=self._how.effort, apart=self._how.apart,
            ),
            strict=True,
        )  # fmt: skip
        self.spent_s += time.perf_counter() - start_s

    def fastest(self) -> int:
        """The candidate of the shortest time, the simpler one of equals."""
        return min(self._tried, key=self._least_s)

    def samples_s(self, candidate: int) -> tuple[float, ...]:
        return tuple(r[candidate - self._tried.start] for r in self._rounds)

    def round_s(self, default_s: float, candidates: Iterable[int]) -> float:
        """What a round of the default with some candidates takes."""
        return self._sample_s(default_s) + sum(self._sample_s(self._least_s(k)) for k in candidates)

    def _least_s(self, candidate: int) -> float:
        tried = candidate in self._tried
        return min(self.samples_s(candidate)) if tried else self.warm_s[candidate]

    def _sample_s(self, call_s: float) -> float:
        return calls_a_sample(call_s, self._how.effort) * call_s + self._beside_s

    @property
    def _beside_s(self) -> float:
        """What a sample takes beside the calls that it times: caches are put into their state.  It
        is little beside long calls."""
        if self._is_long:
            return 0.0
        samples = [s for r in self._rounds for s in r]
        calls_s = sum(calls_a_sample(s, self._how.effort) * s for s in samples)
        return max(0.0, self.spent_s - calls_s) / len(samples)

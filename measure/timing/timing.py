"""When and how often to time: samples by the two clocks, and how many are worth their while.

A `Clock` makes one blocking call and gives its seconds; caches and thread pool are put into their
state before it, outside of what it times.  The *call* clock is that.  The *kernel* clock takes
off the call of an empty kernel with the same operands, measured beside it: a sample is the median
of a few calls less the median of as many empty ones.

Where a host can take cores away (`core_sharing_probe.py`), samples are taken while each thread has
its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from math import ceil, inf
from statistics import median
from types import MappingProxyType

from hlotune.measure.trial import Clock as ClockName

Clock = Callable[[], float]

Apart = Callable[[], bool]
"""Whether each thread has a core to itself just now."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is timed, and what it costs to call something empty in its place."""

    call: Clock
    empty: Clock


_LEAST_EMPTY = 3
"""Empty calls a sample: one alone may meet an interrupt."""

_CHEAP_S = 2e-3
"""Below this a candidate that looks hopeless gets a second look: the machine may have hiccuped."""

_NOISE_S = 20e-6
"""What short kernels may be off by on a busy machine; sampling them costs nothing."""

RESOLUTION_S = 5e-7
"""Least time of a kernel: what is faster is lost in the noise of the call that is taken off.

So all kernels below it count as equally fast, and none of them wins by noise.
"""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much time a candidate gets."""

    least_samples: int = 5
    most_samples: int = 15
    sample_s: float = 50e-6
    """Kernels shorter than this are called several times a sample."""
    budget_s: float = 0.05
    """No further sample after this, once there are enough."""
    most_calls: int = 32
    """Calls a sample."""
    hopeless: float = 3.0
    """A candidate whose first sample is so many times the best gets no other."""
    promising: float = 1.1
    """One of whose least samples none is below so many times the best gets no more of them."""


DEFAULT_EFFORT = Effort()


_WARM_AT_ONCE_S = 10e-3
"""A first call of at least this is one of a long kernel, which needs no second to warm up.

Short ones may have a first call of some milliseconds: of page faults, threads that wake, or another
process's turn.
"""

ONCE_S = 1.0
"""A call of at least this is timed once: what warms up, and the call itself, is nothing of it."""

FEW_S = 0.25
"""One call of at least this warms up, and a comparison has few of them."""

SELDOM = 3.0
"""A subject of calls of `FEW_S` that takes so many times as long as all others is called in two
rounds alone; in further ones it counts as the faster of these."""

_SETTLING_S = 0.3
"""Longest wait for the threads to come apart; the host needs less than a tenth of a second."""

AGREED_S = 0.3
"""What rounds of a comparison take at least before they end as all agree: more of short calls cost
next to nothing, and narrow the interval."""

BRIEF_S = 0.25
"""Rounds of a comparison go on for so long beyond those that were asked for, unless they agree: of
short calls nine rounds are nine calls, whose ratio has an interval from half to twice."""
BRIEF_SHARE = 0.25
"""Where building and checking candidates took long, rounds go on for this share of it instead: of
calls of 10 ms nine rounds are a quarter of a second behind ten seconds of checks, and one disturbed
round among them leaves a candidate that is 1.4 times as fast without a proof."""
MOST_BRIEF = 61
"""So many rounds there are then at most: less than twice those of a final, beside which none counts
as hurried (`tuning_logs/decisions.py`)."""

CLEARLY = 1.1
"""So many times as slow is clearly slower."""

_TRIES = 4
"""Samples in place of one during which the threads came together."""


def always_apart() -> bool:
    """Answers for a machine that takes no cores away."""
    return True


class Steady:
    """Samples with each thread on a core of its own; any samples where that cannot be had.

    There is a look before and after each; between two that follow at once, one is both.  A sample
    of `ONCE_S` or more is not taken again: a look says little about so long a time.
    """

    def __init__(self, apart: Apart) -> None:
        self._apart = apart
        self._is_apart = False
        """Whether the sample before ended so."""

    def sample(self, clock: Clock) -> float:
        seconds = inf
        for _ in range(_TRIES):
            found = self._is_apart or settled(self._apart)
            seconds = clock()
            self._is_apart = found and self._apart()
            if not found or self._is_apart or seconds >= ONCE_S:
                break
        return seconds


def steady(sample: Clock, apart: Apart) -> float:
    """One sample with each thread on a core of its own; any one where that cannot be had."""
    return Steady(apart).sample(sample)


def settled(apart: Apart, limit_s: float | None = None) -> bool:
    """Waits with all threads busy, since a host parts those, but puts sleeping ones together."""
    end = time.perf_counter() + (_SETTLING_S if limit_s is None else limit_s)
    while not (found := apart()) and time.perf_counter() < end:
        pass
    return found


def sampled(
    subject: Subject,
    *,
    clock: ClockName = "kernel",
    best_s: float | None = None,
    effort: Effort = DEFAULT_EFFORT,
    apart: Apart = always_apart,
) -> tuple[float, ...]:
    """Samples of one subject.  Calls that warm up are not counted, unless they take so long that
    one call is enough, or that the candidate is hopeless.

    Args:
        best_s: the best time known for the kernel, by the same clock.
    """

    def near(times: float) -> float:
        return inf if best_s is None else times * best_s + _NOISE_S

    start = time.perf_counter()
    first_s = warmed(subject, _WARM_AT_ONCE_S)
    is_hopeless = (best_s or 0.0) >= _WARM_AT_ONCE_S and first_s > near(effort.hopeless)
    if first_s >= ONCE_S or is_hopeless:
        return (first_s,)
    calls = calls_a_sample(first_s, effort)
    looks = Steady(apart)

    def sample() -> float:
        return looks.sample(lambda: one_sample(subject, calls, clock))

    samples = [sample()]
    limit_s, promising_s = near(effort.hopeless), near(effort.promising)
    if limit_s < samples[0] < _CHEAP_S:
        samples.append(sample())
    if min(samples) > limit_s:
        return tuple(samples)
    while len(samples) < effort.most_samples:
        spent = time.perf_counter() - start
        enough = effort.least_samples if spent < 8 * effort.budget_s else 3
        is_late = spent > effort.budget_s or min(samples) > promising_s
        if is_late and len(samples) >= enough:
            break
        samples.append(sample())
    return tuple(samples)


def warmed(subject: Subject, enough_s: float = inf) -> float:
    """Seconds of a call, caches and threads warm: the shorter of two, or a first of `enough_s`."""
    first_s = subject.call()
    subject.empty()
    return first_s if first_s >= enough_s else min(first_s, subject.call())


def interleaved(
    subjects: Sequence[Subject],
    *,
    pairs: int,
    limit_s: float,
    least: int = 6,
    clock: ClockName = "kernel",
    effort: Effort = DEFAULT_EFFORT,
    apart: Apart = always_apart,
    agreed_s: float = inf,
    brief_s: float = 0.0,
    known_s: Mapping[int, float] = MappingProxyType({}),
    is_first: bool = True,
) -> tuple[tuple[float, ...], ...]:
    """Samples of several subjects, round by round, in orders as of `turns`.

    Stops after `pairs` rounds, one at least, or at `limit_s` seconds once there are the `least`
    that prove anything; at `agreed_s` seconds already if all of these rounds agree.  Where they do
    not, and have taken less than `brief_s` seconds, more follow until then, `MOST_BRIEF` in all.  A
    call of `FEW_S` ahead of the rounds counts as the sample of the first one.

    `known_s` are seconds of subjects, by their numbers, that were called already and need nothing
    to warm them up; the calls count as samples where these rounds are the first.
    """
    start = time.perf_counter()
    warm_s = [known_s[i] if i in known_s else warmed(s, FEW_S) for i, s in enumerate(subjects)]
    calls = [calls_a_sample(seconds, effort) for seconds in warm_s]
    looks = Steady(apart)
    rounds: list[dict[int, float]] = []

    def sample(i: int) -> float:
        if not rounds and warm_s[i] >= FEW_S and (is_first or i not in known_s):
            return warm_s[i]
        if len(rounds) >= 2 and is_seldom(rounds[:2], i):
            return min(r[i] for r in rounds[:2])
        return looks.sample(lambda: one_sample(subjects[i], calls[i], clock))

    for order in islice(turns(len(subjects)), max(pairs, MOST_BRIEF)):
        spent = time.perf_counter() - start
        if len(rounds) >= max(1, pairs) and (spent >= brief_s or agree(rounds)):
            break
        if len(rounds) >= least and (spent > limit_s or (spent > agreed_s and agree(rounds))):
            break
        rounds.append({i: sample(i) for i in order})
    return tuple(tuple(r[i] for r in rounds) for i in range(len(subjects)))


def is_seldom(rounds: Sequence[Mapping[int, float]], i: int) -> bool:
    """Whether a subject has long calls, and took many times as long as all others each time."""
    others = [max(s for k, s in r.items() if k != i) for r in rounds if len(r) > 1]
    slow = all(r[i] >= max(FEW_S, SELDOM * s) for r, s in zip(rounds, others, strict=False))
    return bool(others) and slow


def agree(rounds: Sequence[Mapping[int, float]]) -> bool:
    """Whether each round has the subjects in one order, any two of them apart by `CLEARLY`.

    A round that disagrees does so for good: looking after each round proves no more by chance than
    looking once, after the least number of rounds that proves anything.
    """
    order = sorted(rounds[0], key=rounds[0].__getitem__)
    return all(r[b] >= CLEARLY * r[a] for r in rounds for a, b in pairwise(order))


def turns(count: int) -> Iterator[list[int]]:
    """Orders of rounds without end, each second one the one before it backwards.

    What ran before it makes a kernel faster or slower, by a quarter at worst, so that is not to be
    the same in every round.  The orders are rows of a Latin square in which neighbours change, too
    (E. J. Williams, 1949): in twice as many rounds as there are subjects each stands twice at
    every place, and each runs as often right behind any other.
    """
    zigzag = [k // 2 if k % 2 == 0 else count - 1 - k // 2 for k in range(count)]
    for shift in cycle(range(count)):
        order = [(k + shift) % count for k in zigzag]
        yield order
        yield order[::-1]


def calls_a_sample(call_s: float, effort: Effort = DEFAULT_EFFORT) -> int:
    return max(1, min(effort.most_calls, ceil(effort.sample_s / max(call_s, RESOLUTION_S))))


def one_sample(subject: Subject, calls: int, clock: ClockName = "kernel") -> float:
    """Seconds by the named clock; empty calls are spread among those of the subject."""
    times, empties = [], []
    for _ in range(calls):
        times.append(subject.call())
        if clock == "kernel":
            empties += [subject.empty() for _ in range(ceil(_LEAST_EMPTY / calls))]
    if clock == "call":
        return median(times)
    return max(RESOLUTION_S, median(times) - median(empties))

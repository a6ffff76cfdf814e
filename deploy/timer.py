"""Functions of a whole program, timed in turns on the device by the clock `call`."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from hlotune.deploy.flat_calls import called, called_once, to_give_away
from hlotune.deploy.inputs import Inputs
from hlotune.deploy.long_calls import FEWEST_LONG_PAIRS, Sides, is_far, rounds_in
from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.affinity import pinned
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import fewest_long_pairs, pairs_for
from hlotune.measure.timing.core_sharing_probe import apart_of
from hlotune.measure.timing.retaken import ALONE_S
from hlotune.measure.timing.timing import ONCE_S, is_seldom, steady
from hlotune.schedules.targets.target import Target

WARM_CALLS = 3
SAMPLE_S = 1e-3
"""Calls shorter than this are timed several at a time."""
RUN_UP_S = 2e-3
"""Calls that nobody times go on for so long before each sample, as in a loop of calls: right behind
calls of another program its own data lie far away, and its threads sleep."""
FEWEST_PAIRS = 6
"""Below, no interval of short calls has 95 % confidence."""

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Fewest:
    """The pairs from which on there is an interval, whatever the limit of seconds."""

    pairs: int = FEWEST_PAIRS
    long_pairs: int = FEWEST_LONG_PAIRS
    """The same where calls of the first side take long."""

    @staticmethod
    def of(confidence: float) -> "Fewest":
        return Fewest(pairs_for(confidence), fewest_long_pairs(confidence))

    def seconds(self, first_s: float, second_s: float) -> float:
        """What they take of calls that take so long; calls of seconds that take many times as long
        as the other side's are made in two pairs alone.
        """
        pairs = self.long_pairs if first_s >= ONCE_S else self.pairs
        slow_s, fast_s = max(first_s, second_s), min(first_s, second_s)
        return (2 if is_far(slow_s, fast_s) else pairs) * slow_s + pairs * fast_s


USUAL = Fewest()


class Timer:
    """Times functions of one program on the same arguments, on the device, until a limit."""

    def __init__(
        self, program: Program, inputs: Inputs, target: Target, limit_s: float, turns: Turns
    ) -> None:
        self.program, self.threads = program, target.host_threads
        self.turns, self.end_s = turns, turns.clock_s() + limit_s
        self.apart = apart_of(target)
        with jax.enable_x64(True), jax.default_device(device_of(target.platform)):
            self.values = [jax.device_put(v) for v in inputs.values]

    @property
    def left_s(self) -> float:
        return self.end_s - self.turns.clock_s()

    @property
    def is_over(self) -> bool:
        return self.left_s < 0

    def paired(
        self, default: Function, tuned: Function, pairs: int, *, is_warm: bool = False
    ) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
        """Calls a sample, and seconds a call of both, in the order ABBA: drift is in neither.

        A function whose calls take seconds and many times as long as the other's is called in two
        pairs alone, as in `timing.interleaved`.

        `is_warm` says that both have been called, and that calls of the default take long: then
        none is made ahead of the samples.  Ahead of each sample of short calls some are made.
        """
        both = default, tuned
        with self.turns.alone(), pinned(self.threads):
            warm_s = [] if is_warm else self._warm_s(both)
            calls = _calls(warm_s)
            return calls, *self._paired(both, pairs, calls, _is_short(warm_s), USUAL)

    def proving(
        self, default: Function, tuned: Function, pairs: int, confidence: float
    ) -> Sides | None:
        """Seconds a call of both as `paired` has them, in as many pairs at least as prove something
        with this confidence; None where a call of each, which warms up, shows that there is no time
        for so many.
        """
        both, fewest = (default, tuned), Fewest.of(confidence)
        with self.turns.alone(), pinned(self.threads):
            warm_s = self._warm_s(both)
            if fewest.seconds(*warm_s) > self.left_s:
                return None
            return self._paired(both, pairs, _calls(warm_s), _is_short(warm_s), fewest)

    def rounds(
        self,
        both: tuple[Function, Function],
        left_s: Callable[[], float],
        made: tuple[float, float] | None,
        expected_s: tuple[float, float],
    ) -> Sides:
        """Seconds of calls of both that take long, in `left_s` as `long_calls.rounds_in` has it."""

        def sample(k: int) -> float:
            return steady(partial(self.sample, both[k], 1), self.apart)

        with self.turns.alone(), pinned(self.threads):
            return rounds_in(left_s, sample, made, expected_s)

    def _warm_s(self, both: tuple[Function, Function]) -> list[float]:
        """Seconds of a call of each, the shortest of those that warm up; of long ones, one is
        enough.
        """
        found: list[float] = []
        for function in both:
            seconds: list[float] = []
            while len(seconds) < WARM_CALLS and min(seconds, default=0.0) < ONCE_S:
                seconds.append(self.sample(function, 1))
            found.append(min(seconds))
        return found

    def _paired(
        self,
        both: tuple[Function, Function],
        pairs: int,
        calls: int,
        run_up: bool,
        fewest: Fewest,
    ) -> Sides:
        """`run_up` says whether samples come behind calls that nobody times."""
        take = self._in_a_loop if run_up else self.sample
        samples: tuple[list[float], list[float]] = ([], [])
        for pair in range(pairs):
            long = pair > 0 and min(samples[0]) >= ONCE_S
            if self.is_over and pair >= (fewest.long_pairs if long else fewest.pairs):
                break
            first = [dict(enumerate(each)) for each in zip(*(s[:2] for s in samples), strict=True)]
            for k in (0, 1) if pair % 2 == 0 else (1, 0):
                if pair >= 2 and is_seldom(first, k):
                    samples[k].append(min(samples[k][:2]))
                    continue
                samples[k].append(steady(partial(take, both[k], calls), self.apart))
        return tuple(samples[0]), tuple(samples[1])

    def _in_a_loop(self, function: Function, calls: int) -> float:
        """A sample behind calls of the same function that nobody times."""
        end_s = time.perf_counter() + RUN_UP_S
        while True:
            for x in called(self.program, function, self.values):
                x.block_until_ready()
            if time.perf_counter() >= end_s:
                return self.sample(function, calls)

    def sample(self, function: Function, calls: int) -> float:
        """Seconds of a blocking call, the mean of several.

        What the program donates is copied before the clock starts, for each call.
        """
        values = [to_give_away(self.program, self.values) for _ in range(calls)]
        start = time.perf_counter()
        for given in values:
            for x in called_once(self.program, function, given):
                x.block_until_ready()
        return (time.perf_counter() - start) / calls


def proving_s(first_s: float, second_s: float, confidence: float) -> float:
    """The seconds in which `Timer.proving` proves something of functions whose calls take so long:
    those that warm up, and the fewest pairs.
    """
    both = first_s, second_s
    warm_s = sum(s if s >= ONCE_S else WARM_CALLS * s for s in both)
    fewest = Fewest.of(confidence)
    pairs_s = fewest.seconds(*both)
    if _is_short(both):
        pairs_s = fewest.pairs * sum(map(pair_s, both)) / 2
    return warm_s + pairs_s


def pair_s(call_s: float) -> float:
    """What a pair of samples takes of two functions whose calls take so long, with the calls ahead
    of each sample, where none is made again.
    """
    run_up_s = RUN_UP_S + call_s if _is_short([call_s]) else 0.0
    return 2 * (run_up_s + _calls([call_s]) * call_s)


def _calls(warm_s: Sequence[float]) -> int:
    """Calls a sample."""
    return max(1, math.ceil(SAMPLE_S / min(warm_s, default=SAMPLE_S)))


def _is_short(warm_s: Sequence[float]) -> bool:
    """Whether calls of both sides are so short that samples are made in a loop of calls: of one
    side alone, the other would be timed in another way.
    """
    return bool(warm_s) and all(s < ALONE_S for s in warm_s)

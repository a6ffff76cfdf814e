"""Functions of a whole program, timed in turns on the device by the clock `call`."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from hlotune.deploy.flat_calls import called_once, to_give_away
from hlotune.deploy.inputs import Inputs
from hlotune.deploy.long_calls import FEWEST_LONG_PAIRS, Sides, rounds_in
from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.affinity import pinned
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.core_sharing_probe import apart_of
from hlotune.measure.timing.timing import ONCE_S, is_seldom, steady
from hlotune.schedules.targets.target import Target

WARM_CALLS = 3
SAMPLE_S = 1e-3
"""Calls shorter than this are timed several at a time."""
FEWEST_PAIRS = 6
"""Below, no interval of short calls has 95 % confidence."""

Function = Callable[..., Any]


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
        none is made ahead of the samples.
        """
        with self.turns.alone(), pinned(self.threads):
            warm_s = [SAMPLE_S] if is_warm else self._warm_s((default, tuned))
            return self._paired((default, tuned), pairs, min(warm_s))

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
        """Seconds of calls that warm up; of long ones, one is enough."""
        found: list[float] = []
        for function in both:
            for _ in range(WARM_CALLS):
                found.append(self.sample(function, 1))
                if found[-1] >= ONCE_S:
                    break
        return found

    def _paired(
        self, both: tuple[Function, Function], pairs: int, warm_s: float
    ) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
        calls = max(1, math.ceil(SAMPLE_S / warm_s))
        samples: tuple[list[float], list[float]] = ([], [])
        for pair in range(pairs):
            long = pair > 0 and min(samples[0]) >= ONCE_S
            if self.is_over and pair >= (FEWEST_LONG_PAIRS if long else FEWEST_PAIRS):
                break
            first = [dict(enumerate(each)) for each in zip(*(s[:2] for s in samples), strict=True)]
            for k in (0, 1) if pair % 2 == 0 else (1, 0):
                if pair >= 2 and is_seldom(first, k):
                    samples[k].append(min(samples[k][:2]))
                else:
                    samples[k].append(steady(partial(self.sample, both[k], calls), self.apart))
        return calls, tuple(samples[0]), tuple(samples[1])

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

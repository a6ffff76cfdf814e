"""Functions of a whole program, timed in turns on the device by the clock `call`."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from hlotune.deploy.accuracy import Inputs, called_once, to_give_away
from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.affinity import pinned
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.core_sharing_probe import apart_of
from hlotune.measure.timing.timing import steady
from hlotune.schedules.targets.target import Target

WARM_CALLS = 3
SAMPLE_S = 1e-3
"""Calls shorter than this are timed several at a time."""
FEWEST_PAIRS = 6
"""Below, no interval has 95 % confidence."""

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
        self, default: Function, tuned: Function, pairs: int
    ) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
        """Calls a sample, and seconds a call of both, in the order ABBA: drift is in neither."""
        with self.turns.alone(), pinned(self.threads):
            return self._paired((default, tuned), pairs)

    def _paired(
        self, both: tuple[Function, Function], pairs: int
    ) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
        warm_s = [self.sample(f, 1) for f in both for _ in range(WARM_CALLS)]
        calls = max(1, math.ceil(SAMPLE_S / min(warm_s)))
        samples: tuple[list[float], list[float]] = ([], [])
        for pair in range(pairs):
            if self.is_over and pair >= FEWEST_PAIRS:
                break
            for k in (0, 1) if pair % 2 == 0 else (1, 0):
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

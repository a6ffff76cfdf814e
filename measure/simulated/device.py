"""A device without hardware: builds by replaying, times by a closed formula and seeded noise.

Tests searches, budgets and interruptions in seconds, the same on every machine.  It takes the
places of builder and runner, and has a clock of its own, which goes on as building and timing would
take.  What it says about a kernel says nothing about real hardware.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hlotune.codegen.built import Built
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.simulated.time_formula import simulated_s
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.targets.cpu import CpuTarget

BUILD_S = 0.02
CALLS = 30
"""Calls that one trial makes, for verification and timing together."""
TRIAL_S = 0.01
"""What a trial takes besides building and calling."""
SAMPLES = 5
DEFAULT_FLOPS_PER_S = 6e10
"""The rate at which the default compiler computes on this device."""


@dataclass
class SimulatedDevice(CompilesNothing):
    """Builder, runner and clock.

    Args:
        luck: standard deviation of what makes nests faster or slower than the formula says, as a
            share of the time.  It belongs to the nest: measuring again does not average it out.
        noise: standard deviation of samples, as a share of the time.
        build_s: what building takes on the device's clock.
    """

    target: CpuTarget
    seed: int = 0
    luck: float = 0.05
    noise: float = 0.01
    build_s: float = BUILD_S
    elapsed_s: float = 0.0
    trials: int = 0

    def now(self) -> float:
        """Seconds since the device was made, on its own clock."""
        return self.elapsed_s

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        """The object is the number of seconds that a call will take, as text."""
        return [self._built(c) for c in candidates]

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        return [Trial(c, self._outcome(x, CALLS, SAMPLES)) for c, x in objects]

    def default(self, kernel: Kernel) -> Measurement:
        time_s = flops_of(compute(kernel)) / DEFAULT_FLOPS_PER_S
        return self._samples(time_s, CALLS, SAMPLES)

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        staying: int | None = None,
    ) -> Comparison:
        default_s = flops_of(compute(kernel)) / DEFAULT_FLOPS_PER_S
        candidates = tuple(self._outcome(x, CALLS + pairs, pairs) for _, x in objects)
        return Comparison(self._samples(default_s, CALLS + pairs, pairs), candidates)

    def _built(self, candidate: Candidate) -> Built | Failure:
        self.elapsed_s += self.build_s
        try:
            nest = replay(compute(candidate.kernel), candidate.schedule, self.target)
        except ScheduleError as error:
            return Failure("schedule", str(error))
        time_s = simulated_s(nest) * float(np.exp(self.luck * normal(self.seed, str(nest))))
        return Built(repr(time_s).encode(), 0, (), 1, self.target.threads)

    def _outcome(self, built: Built | Failure, calls: int, samples: int) -> Measurement | Failure:
        if isinstance(built, Failure):
            return built
        return self._samples(float(built.object), calls, samples)

    def _samples(self, time_s: float, calls: int, samples: int) -> Measurement:
        self.trials += 1
        self.elapsed_s += TRIAL_S + calls * time_s
        rng = np.random.default_rng([self.seed, self.trials])
        times = time_s * np.exp(self.noise * rng.standard_normal(samples))
        return Measurement(samples_s=tuple(map(float, times)))


def normal(seed: int, text: str) -> float:
    """A standard normal number that hangs on seed and text alone."""
    digest = hashlib.sha256(f"{seed} {text}".encode()).digest()
    return float(np.random.default_rng(list(digest)).standard_normal())


@lru_cache(maxsize=256)
def compute(kernel: Kernel) -> Compute:
    return compute_of(graph_of(kernel))

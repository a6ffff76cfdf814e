"""Records of products of six sizes, timed on the simulated device."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.spaces.cpu_contraction.space import space_of
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.target import Toolchain
from hlotune.search.learning.training_rows import Examples, examples
from hlotune.tuning_logs.database import Database

TARGET = TARGETS["x86-64"]
TOOLS = Toolchain(jaxlib="0", llvm="0", codegen="0", xla_flags="")
EXTENTS = (24, 40, 56, 80, 96, 128)
RANDOM = 40
DRAWN = 24
"""Recorded under a random searcher, the others under one that guides."""


def dot(extent: int) -> Kernel:
    left, right = np.zeros((extent, 48), np.float32), np.zeros((48, 32), np.float32)
    return sites(load(lambda x, y: x @ y, left, right))[0].kernel


def simulated(kernel: Kernel, seed: int) -> list[Trial]:
    """The default and random schedules; of these one failed, and on one the device."""
    space, device = space_of(compute_of(graph_of(kernel)), TARGET), SimulatedDevice(TARGET)
    configs = space.sample(RANDOM, np.random.default_rng(seed))
    candidates = [Candidate(kernel, space.schedule(c)) for c in configs]
    objects = list(zip(candidates, device.build(candidates), strict=True))
    objects[3] = (candidates[3], Failure("wrong_result", "made up"))
    objects[4] = (candidates[4], Failure("device", "made up"))
    return [
        Trial(Candidate(kernel, DEFAULT), Measurement(samples_s=(1e-3,))),
        *device.measure(kernel, objects),
    ]


def recorded(file: Path, extents: Sequence[int] = EXTENTS) -> Path:
    """A new database with them: the first trials of each drawn at random, the others guided."""
    with Database(file) as database:
        drawn = database.start_run(None, TARGET, TOOLS, options={"searcher": "random"})
        guided = database.start_run(None, TARGET, TOOLS, options={"searcher": "annealing"})
        for seed, extent in enumerate(extents):
            kernel = dot(extent)
            default, *trials = simulated(kernel, seed)
            database.add(drawn, kernel, [default, *trials[:DRAWN]], batch=0)
            database.add(guided, kernel, trials[DRAWN:], batch=0)
    return file


def examples_of(file: Path) -> list[Examples]:
    with Database(file) as database:
        return list(examples(database))

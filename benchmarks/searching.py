"""One search over one operator, without the rest of a tuning run: what benchmarks of it share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.cases import source
from hlotune.costmodel.model import CostModel
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.trial import Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.experience import Experience
from hlotune.search.searchers.descent import Descent
from hlotune.search.searchers.searcher import SEARCHERS, Searcher
from hlotune.search.tasks import Task, tasks
from hlotune.search.tuner import KernelTuner, Predicted, Record
from hlotune.search.workers import Builder, Runner


@dataclass(frozen=True, slots=True)
class Operator:
    """A case as a program with one kernel to tune."""

    name: str
    program: Program
    site: Site
    task: Task


def operator(
    name: str,
    target: CpuTarget,
    source: Callable[[str], str] = source,
    numerics: Numerics = "standard",
) -> Operator:
    """A case of `cases.py`, or of another file that `source` tells; of a program that a release of
    JAX writes as several kernels, the one with the most operations."""
    program = load(source(name))
    places = sites(program)
    operations = {s.kernel: len(s.ops) for s in places}
    found, _ = tasks(places, target, numerics)
    task = max(found, key=lambda t: operations[t.kernel])
    site = next(s for s in places if s.kernel == task.kernel)
    return Operator(name, program, site, task)


def forget(trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None) -> None:
    """Keeps nothing of a batch."""


def blind(
    task: Task, searcher: str, model: CostModel, seed: int, first: Configs | None = None
) -> Searcher:
    """A searcher that measures no heuristic first: but for what it is lent as the first, what it
    finds, it found itself.
    """
    entropy = (seed, int(task.kernel.key, 16))
    return SEARCHERS[searcher](
        task.space, model, entropy, no_configs(task) if first is None else first
    )


def kernel_tuner(
    task: Task,
    searcher: Searcher,
    model: CostModel,
    builder: Builder,
    runner: Runner,
    record: Record = forget,
    experience: Experience | None = None,
    group: int = 0,
    numerics: Numerics = "standard",
) -> KernelTuner:
    """A tuner whose finisher is never asked; of its own experience, unless one is given."""
    return KernelTuner(
        task.kernel,
        task.space,
        searcher=searcher,
        finisher=Descent(task.space, model, (0,), no_configs(task)),
        experience=experience or Experience(model),
        group=group,
        builder=builder,
        runner=runner,
        record=record,
        numerics=numerics,
    )


def no_configs(task: Task) -> Configs:
    return np.empty((0, len(task.space.heuristic())), np.int32)

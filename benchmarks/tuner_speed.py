"""How fast the tuner itself is: a whole run, and its parts.

    python -m benchmarks.tuner_speed

A whole run is `tune run` in a fresh process on a fresh database, from the first import to the
report.  The parts are measured on the same kernel: one proposal of the searcher with all that it
knows after that run, and building and measuring candidates drawn at random, one at a time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import source
from benchmarks.command import command
from benchmarks.results import Table, conditions, publish
from benchmarks.searching import blind, kernel_tuner, operator
from hlotune.codegen.built import Built
from hlotune.codegen.runtime.malloc_settings import keep_memory
from hlotune.costmodel.inputs import Inputs, Reads, count
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.pretrained import start
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.search.budget.budget import BATCH
from hlotune.search.experience import Experience
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.database import conditions as under_conditions

PROPOSALS = 5
MOST_ROWS = 2500
"""That models read between two batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    what: str
    value: float
    unit: str
    note: str = ""


class Counting:
    """A model that counts the configs that it is asked about."""

    def __init__(self, model: CostModel) -> None:
        self._model, self.asked = model, 0

    @property
    def reads(self) -> Reads:
        return self._model.reads

    @property
    def knows(self) -> bool:
        return self._model.knows

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        self._model.fit(inputs, scores, groups)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        self.asked += count(inputs)
        return self._model.predict(inputs)

    def save(self, path: Path) -> None:
        self._model.save(path)

    def load(self, path: Path) -> None:
        self._model.load(path)


def main() -> None:
    options = parsed()
    keep_memory()
    target = host_target()
    task = operator(options.case, target).task
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = Path(folder) / "tuning.db"
        with ProcessRunner(target) as runner:
            before = conditions(target, runner.properties())
        figures = list(whole(options.case, options.trials, path))
        builder = stack.enter_context(ProcessBuilder(target, processes=1))
        runner = stack.enter_context(ProcessRunner(target))
        with Database(path, create=False) as database:
            under = under_conditions(target, toolchain())
            known = database.trials(task.kernel.key, **under)
        for model in options.models:
            figures += proposing(task, known, builder, runner, model)
        figures += parts(task, options.candidates, builder, runner)
    publish(table(options.case, figures), before, [asdict(f) for f in figures])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="C6")
    parser.add_argument("--trials", type=int, default=512, help="of the whole run")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=("trees", "treegru"))
    parser.add_argument("--candidates", type=int, default=BATCH, help="built and measured")
    return parser.parse_args()


def whole(case: str, trials: int, path: Path) -> Iterator[Figure]:
    """A run of `tune run` in a process of its own."""
    arguments = ["run", source(case), "--trials", str(trials), "--database", str(path), "--json"]
    start_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments], check=True, stdout=subprocess.PIPE
    )
    wall_s = time.perf_counter() - start_s
    report = json.loads(done.stdout)
    failed = sum(kernel["failures"] for kernel in report["kernels"])
    measured = report["trials"]
    yield Figure(
        what=f"tune run, {trials} trials", value=wall_s, unit="s",
        note=f"{measured} trials with the default, {failed} failed; process start to report",
    )  # fmt: skip
    yield Figure(what="the same, a trial", value=wall_s / measured * 1e3, unit="ms")


def proposing(
    task: Task, known: Sequence[Trial], builder: ProcessBuilder, runner: ProcessRunner, name: str
) -> Iterator[Figure]:
    """Batches proposed by annealing that knows all trials of the run, on one model."""
    begun = start(name)
    model = Counting(begun.model)
    for what in (f"{name}, the first time", name):  # then it imports
        search, experience = blind(task, "annealing", model, seed=0), Experience(model)
        tuner = kernel_tuner(task, search, model, builder, runner, experience=experience)
        tuner.know(known)
        yield learning(experience, what, f"{len(known)} trials, {begun.words}")
    for group in range(1, ceil(MOST_ROWS / len(known))):  # as of so many kernels
        other = blind(task, "random", model, seed=0)
        kernel_tuner(task, other, model, builder, runner, experience=experience, group=group).know(
            known
        )
    yield learning(experience, name, f"{MOST_ROWS} trials, as many as it reads at most")
    model.asked, seconds = 0, []
    for _ in range(PROPOSALS):
        start_s = time.perf_counter()
        search.propose(BATCH)
        seconds.append(time.perf_counter() - start_s)
    scored = model.asked // PROPOSALS
    yield Figure(
        what=f"a proposal of {BATCH}, {name}", value=median(seconds), unit="s",
        note=f"{scored} configs scored, median of {PROPOSALS}",
    )  # fmt: skip
    yield Figure(
        what=f"configs scored a second, {name}", value=scored / median(seconds), unit="",
        note="moved, checked, described and ranked",
    )  # fmt: skip


def learning(experience: Experience, name: str, note: str) -> Figure:
    start_s = time.perf_counter()
    experience.learn()
    spent_s = time.perf_counter() - start_s
    return Figure(what=f"learning, {name}", value=spent_s * 1e3, unit="ms", note=note)


def parts(
    task: Task, count: int, builder: ProcessBuilder, runner: ProcessRunner
) -> Iterator[Figure]:
    """Building and measuring, a candidate at a time; the first of each is left out."""
    rng = np.random.default_rng(0)
    candidates = [
        Candidate(task.kernel, task.space.schedule(config))
        for config in task.space.sample(count + 1, rng)
    ]
    objects: list[tuple[Candidate, Built | Failure]] = []
    build_s, measure_s = [], []
    for candidate in candidates:
        start_s = time.perf_counter()
        objects += zip([candidate], builder.build([candidate]), strict=True)
        build_s.append(time.perf_counter() - start_s)
    right = [pair for pair in objects if isinstance(pair[1], Built)]
    for pair in right:
        start_s = time.perf_counter()
        runner.measure(task.kernel, [pair])
        measure_s.append(time.perf_counter() - start_s)
    yield from quantiles(
        "building a candidate", build_s[1:], f"one process, {len(right)} of {len(objects)} built"
    )
    yield from quantiles("verifying and timing one", measure_s[1:], "of those that were built")


def quantiles(what: str, seconds: Sequence[float], note: str) -> Iterator[Figure]:
    for name, share in (("median", 50), ("p90", 90)):
        value = float(np.percentile(seconds, share)) * 1e3
        yield Figure(what=f"{what}, {name}", value=value, unit="ms", note=note)


def table(case: str, figures: Sequence[Figure]) -> Table:
    return Table(
        name="tuner",
        columns=["what", ">value", "unit", "how"],
        rows=[[f.what, f"{f.value:.4g}", f.unit, f.note] for f in figures],
        notes=[f"kernel {case}"],
    )


if __name__ == "__main__":
    command(main)

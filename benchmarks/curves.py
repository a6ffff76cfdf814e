"""Learned search against random search: the best time so far, by trials.

    python -m benchmarks.curves --seeds 5

Annealing on boosted trees against distinct legal configs at random.  Both leave out the heuristic
and the default compiler, and their batches are measured in turns.  The trees start as in a tuning
run: trained where a trained model comes with the package, else beside a roofline.
Random search goes on until it has what annealing had at the end, or gives up.

With `--numerics strict` no algorithms of Winograd's are in the space, as in every search that does
no more than reorder sums.

Curves are read from the trials in the database; a race that is complete there is not run again, as
long as the model that comes with the package is the same.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.cases import CASES, forms
from benchmarks.command import RECORDED, command
from benchmarks.learned import reached
from benchmarks.results import Table, conditions, geometric_mean, milliseconds, publish
from benchmarks.searching import Operator, blind, kernel_tuner, operator
from hlotune.costmodel.pretrained import start
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.budget.budget import grown
from hlotune.search.tuner import KernelTuner, Predicted
from hlotune.search.workers import Builder, Runner
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Summary

RIVALS = {"annealing": "trees", "random": "random"}
"""Searcher and model.  Random search asks no model: the one named costs nothing to fit."""
OPERATORS = ("C6", "C9", "gemm_1024")

Curve = NDArray[np.float64]
"""Best time after each trial, in seconds; infinite as long as everything failed."""


@dataclass(frozen=True, slots=True)
class Lengths:
    trials: int
    """The trials of annealing, and the least number of trials of random search."""
    patience: int
    """Trials after which random search gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    case: str
    seed: int
    trials: int
    annealing_s: tuple[float | None, ...]
    """Best so far after each trial; None as long as everything failed."""
    random_s: tuple[float | None, ...]
    ratio: float
    """Random's best over annealing's, after as many trials: above 1 annealing is ahead."""
    random_trials: int | None
    """That random search took to reach what annealing reached; None where it gave up."""


def main() -> None:
    options = parsed()
    lengths = Lengths(options.trials, max(options.trials, options.random_trials))
    target = host_target()
    with ExitStack() as stack:
        database = stack.enter_context(Database(options.database))
        builder = stack.enter_context(ProcessBuilder(target))
        numerics: Numerics = options.numerics
        runner = stack.enter_context(ProcessRunner(target, numerics))
        properties = runner.properties()
        before = conditions(target, properties)
        arena = Arena(database, builder, runner, target, properties, lengths, numerics)
        races: list[Race] = []
        for seed in range(options.seeds):
            for name in options.cases:
                of = operator(name, target, numerics=numerics)
                races.append(arena.race(of, seed))
                found = table(races, lengths, numerics)
                publish(found, before, [asdict(r) for r in races])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [n for case in CASES for n in forms(case)]
    parser.add_argument("--cases", nargs="+", choices=names, metavar="CASE", default=OPERATORS)
    parser.add_argument("--seeds", type=int, default=5, help="races of each case")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--random-trials", type=int, default=500, help="at most")
    parser.add_argument("--numerics", choices=NUMERICS, default="standard")
    parser.add_argument("--database", type=Path, default=Path("build/search.db"))
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


@dataclass(frozen=True, slots=True)
class Arena:
    """Where races are run and recorded."""

    database: Database
    builder: Builder
    runner: Runner
    target: CpuTarget
    properties: Properties
    lengths: Lengths
    numerics: Numerics = "standard"

    def race(self, of: Operator, seed: int) -> Race:
        ids = {s: self._recorded(of, s, seed) for s in RIVALS}
        if not all(ids.values()):
            self._run(of, seed)
            ids = {s: self._recorded(of, s, seed) for s in RIVALS}
        annealing, random = (self._curve(ids[s] or "") for s in RIVALS)
        return race_of(of.name, seed, annealing, random, self.lengths.trials)

    def _run(self, of: Operator, seed: int) -> None:
        with self._tuner(of, "annealing", seed) as ours, self._tuner(of, "random", seed) as rival:
            done = 0
            while done < self.lengths.trials:
                size = min(grown(done), self.lengths.trials - done)
                ours.step(size)
                rival.step(size)
                done += size
            while done < self.lengths.patience and rival.best_s > ours.best_s:
                size = min(grown(done), self.lengths.patience - done)
                rival.step(size)
                done += size

    @contextmanager
    def _tuner(self, of: Operator, searcher: str, seed: int) -> Iterator[KernelTuner]:
        """A tuner whose trials are a run of the database, complete when the block ends."""
        start_s = time.monotonic()
        run = self.database.start_run(
            of.program,
            self.target,
            toolchain(),
            sites=[of.site],
            properties=self.properties,
            options=self._options(searcher),
            seed=seed,
        )

        def record(
            trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
        ) -> None:
            self.database.add(
                run, of.task.kernel, trials, batch=batch, state=state, predicted=predicted
            )

        model = start(RIVALS[searcher]).model
        search = blind(of.task, searcher, model, seed)
        yield kernel_tuner(
            of.task, search, model, self.builder, self.runner, record, numerics=self.numerics
        )
        self.database.finish_run(run, Summary(wall_s=time.monotonic() - start_s))

    def _options(self, searcher: str) -> dict[str, object]:
        """What tells runs apart, the file of the trained model included."""
        model = RIVALS[searcher]
        begun = {"searcher": searcher, "model": model, "digest": start(model).digest}
        return {**begun, **asdict(self.lengths), "numerics": self.numerics}

    def _recorded(self, of: Operator, searcher: str, seed: int) -> str | None:
        """A finished run of this race, on this machine."""
        found = self.database.query(
            """select id from runs where finished is not null and program = :program
            and target = :target and toolchain = :toolchain and threads = :threads
            and options = :options and seed = :seed order by started desc limit 1""",
            {
                "program": of.program.key,
                "target": self.target.fingerprint,
                "toolchain": toolchain().key,
                "threads": self.target.threads,
                "options": rows.dumps(self._options(searcher)),
                "seed": seed,
            },
        )
        return str(found[0]["id"]) if found else None

    def _curve(self, run: str) -> Curve:
        found = self.database.query(
            "select time_s from trials where run = :run order by number", {"run": run}
        )
        times = [np.inf if row["time_s"] is None else row["time_s"] for row in found]
        return np.minimum.accumulate(np.array(times, np.float64))


def race_of(case: str, seed: int, annealing: Curve, random: Curve, trials: int) -> Race:
    """What two curves say.  Raises ValueError where nothing worked at all on one side."""
    ours, theirs = (float(c[min(trials, len(c)) - 1]) for c in (annealing, random))
    if not np.isfinite([ours, theirs]).all():
        raise ValueError(f"expected candidates of {case} that work, got none in {trials} trials")
    return Race(
        case=case,
        seed=seed,
        trials=trials,
        annealing_s=as_json(annealing),
        random_s=as_json(random),
        ratio=theirs / ours,
        random_trials=reached(random, ours),
    )


def as_json(curve: Curve) -> tuple[float | None, ...]:
    return tuple(float(t) if np.isfinite(t) else None for t in curve)


def table(races: Sequence[Race], lengths: Lengths, numerics: Numerics = "standard") -> Table:
    columns = [
        "case", ">seeds", ">annealing ms", ">random ms", ">ratio", ">least", ">most",
        ">random needs", ">never",
    ]  # fmt: skip
    cases = list(dict.fromkeys(r.case for r in races))
    lines = [cells(case, [r for r in races if r.case == case], lengths) for case in cases]
    if len(cases) > 1:
        lines.append(cells("all", races, lengths))
    return Table(
        name="search" if numerics == "standard" else f"search_{numerics}",
        columns=columns,
        rows=lines,
        notes=[
            f"best after {lengths.trials} trials, medians of the seeds; no heuristic, no default",
            "ratio: random's best over annealing's, geometric mean; above 1 annealing is ahead",
            "random needs: median of the trials until it has what annealing had; never: races in "
            f"which {lengths.patience} were not enough",
        ],
    )


def cells(case: str, races: Sequence[Race], lengths: Lengths) -> list[str]:
    ratios = [r.ratio for r in races]
    best = [(r.annealing_s[r.trials - 1], r.random_s[r.trials - 1]) for r in races]
    ours, theirs = ([t for t in column if t] for column in zip(*best, strict=True))
    return [
        case,
        str(len(races)),
        "-" if case == "all" else milliseconds(median(ours)),
        "-" if case == "all" else milliseconds(median(theirs)),
        f"{geometric_mean(ratios):.3f}",
        f"{min(ratios):.3f}",
        f"{max(ratios):.3f}",
        needed(races, lengths),
        str(sum(r.random_trials is None for r in races)),
    ]


def needed(races: Sequence[Race], lengths: Lengths) -> str:
    """The median, where giving up counts as more than anything."""
    middle = median(
        lengths.patience + 1 if r.random_trials is None else r.random_trials for r in races
    )
    return f"> {lengths.patience}" if middle > lengths.patience else f"{middle:g}"


if __name__ == "__main__":
    command(main, RECORDED)

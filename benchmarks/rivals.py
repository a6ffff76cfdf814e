"""What models are worth in whole runs: kernels tuned on each of them, and their winners in turns.

    python -m benchmarks.rivals --models trees treegru --seeds 3

All runs make the same number of trials, each on an empty database; seconds are those of the whole
run.  The winners of one case and seed are then timed in turns: clock `kernel`, cache mode `model`.
What is complete under `build/rivals` is not tuned again.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import mean, median

from benchmarks.cases import CASES, forms, source
from benchmarks.command import RECORDED, command
from benchmarks.operators import right
from benchmarks.own_runs import Run, once, place
from benchmarks.results import (
    Table,
    conditions,
    geometric_mean,
    interval,
    milliseconds,
    publish,
)
from benchmarks.searching import Operator, operator
from hlotune.cli.progress import watching
from hlotune.costmodel.model import MODELS
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.comparison import Ratio, ratio
from hlotune.measure.trial import Candidate
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search.result import TuneResult
from hlotune.search.tune import tune
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.database import conditions as under_conditions
from hlotune.tuning_logs.decisions import decision

OPERATORS = ("C2", "C7", "C9", "gemm_512", "gemm_128x768x3072")
PAIRS = 31
CLOSE = 0.03
"""Share of the speed that a rival may lack."""
LONGER = 2.0
"""A rival may take so many times the seconds."""

Samples = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model on one case; speed and seconds are relative to the first model's."""

    case: str
    model: str
    seed: int
    trials: int
    wall_s: float
    tuned_s: float
    speed: float
    """Time of the first model's winner over that of this one's, the median of the pairs."""
    low: float
    high: float
    longer: float
    """Seconds of the run over those of the first model's."""


def main() -> None:
    options = parsed()
    target = host_target()
    with ProcessRunner(target) as runner:
        before = conditions(target, runner.properties())
    lines: list[Line] = []
    for seed in range(options.seeds):
        for case in options.cases:
            of = operator(case, target)
            runs = {m: tuned(case, m, seed, options.trials) for m in options.models}
            samples = timed(of.task.kernel, winners(of, runs, target), target)
            lines += lines_of(case, seed, runs, samples)
            publish(table(lines), before, [asdict(x) for x in lines])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [n for case in CASES for n in forms(case)]
    parser.add_argument("--cases", nargs="+", choices=names, metavar="CASE", default=OPERATORS)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=("trees", "treegru"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=200, help="of each run")
    return parser.parse_args()


def tuned(case: str, model: str, seed: int, trials: int) -> Run:
    def run(path: Path) -> TuneResult:
        with watching() as progress:
            return tune(
                load(source(case)), trials=trials, database=path, model=model, seed=seed,
                progress=progress,
            )  # fmt: skip

    return once(place(Path("build/rivals"), case, trials, seed, model=model), run)


def winners(of: Operator, runs: dict[str, Run], target: CpuTarget) -> list[Schedule]:
    """What each run decided for, in the order of the models."""
    under, found = under_conditions(target, toolchain()), []
    for run in runs.values():
        with Database(run.database, create=False) as database:
            found.append(decision(database, of.task.kernel.key, **under).schedule)
    return found


def timed(kernel: Kernel, schedules: Sequence[Schedule], target: CpuTarget) -> list[Samples]:
    """Paired samples of each, the default among them where it was kept."""
    candidates = [Candidate(kernel, s) for s in dict.fromkeys(schedules) if s != DEFAULT]
    with ProcessBuilder(target) as builder, ProcessRunner(target) as runner:
        objects = list(zip(candidates, builder.build(candidates), strict=True))
        met = runner.compare(kernel, objects, pairs=PAIRS, clock="kernel")
    times = {DEFAULT: met.default.samples_s}
    for candidate, outcome in zip(candidates, met.candidates, strict=True):
        times[candidate.schedule] = right(outcome, kernel).samples_s
    return [times[s] for s in schedules]


def lines_of(case: str, seed: int, runs: dict[str, Run], samples: Sequence[Samples]) -> list[Line]:
    first = next(iter(runs.values()))
    found = []
    for (model, run), times in zip(runs.items(), samples, strict=True):
        against: Ratio = ratio(samples[0], times)
        found.append(
            Line(
                case=case, model=model, seed=seed, trials=run.trials, wall_s=run.counted_s,
                tuned_s=median(times), speed=against.median, low=against.low, high=against.high,
                longer=run.counted_s / first.counted_s,
            )
        )  # fmt: skip
    return found


def table(lines: Sequence[Line]) -> Table:
    pairs = list(dict.fromkeys((x.case, x.model) for x in lines))
    groups = [[x for x in lines if (x.case, x.model) == pair] for pair in pairs]
    return Table(
        name="rivals",
        columns=[
            "case", "model", ">seeds", ">tuned ms", ">speed", ">95 %", ">least", ">most",
            ">tuner s", ">longer",
        ],
        rows=[cells(group) for group in groups],
        notes=[
            f"{max(x.trials for x in lines)} trials a run, the default's among them; speed: time "
            "of the winner on the first model over that of this one's, timed in turns, geometric "
            "mean of the seeds and its 95 % interval; longer: seconds of the run over those of the "
            "first model's",
            *verdicts(groups),
        ],
    )  # fmt: skip


def cells(of: Sequence[Line]) -> list[str]:
    speeds = [x.speed for x in of]
    return [
        of[0].case,
        of[0].model,
        str(len(of)),
        milliseconds(median(x.tuned_s for x in of)),
        f"{geometric_mean(speeds):.3f}",
        said(interval(speeds)),
        f"{min(speeds):.3f}",
        f"{max(speeds):.3f}",
        f"{mean(x.wall_s for x in of):.1f}",
        f"{geometric_mean([x.longer for x in of]):.2f}",
    ]


def said(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"{low:.3f} to {high:.3f}" if isfinite(high) else "-"


def verdicts(groups: Sequence[Sequence[Line]]) -> list[str]:
    """For each model but the first, on how many cases it keeps up, and on how many certainly."""
    found = []
    for model in list(dict.fromkeys(g[0].model for g in groups))[1:]:
        own = [g for g in groups if g[0].model == model]
        speeds = [[x.speed for x in g] for g in own]
        close = sum(geometric_mean(s) >= 1 - CLOSE for s in speeds)
        bounds = [interval(s) for s in speeds]
        surely = sum(low >= 1 - CLOSE for low, _ in bounds)
        behind = sum(high < 1 - CLOSE for _, high in bounds)
        short = sum(geometric_mean([x.longer for x in g]) <= LONGER for g in own)
        found.append(
            f"{model}: in the mean at most {CLOSE:.0%} slower on {close} of {len(own)} cases; by "
            f"the intervals surely so on {surely}, surely slower on {behind}; in at most "
            f"{LONGER:g} times the seconds on {short}"
        )
    return found


if __name__ == "__main__":
    command(main, RECORDED)

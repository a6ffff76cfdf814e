"""A short budget against a long one: how much of a program's speed is found how soon.

    python -m benchmarks.budgets examples/resnet18.py:frozen --short 90s --long 10m

Each budget begins with an empty database and the model that comes with the package.  Both tuned
programs are held against the oracle, then called in turns, clock `call`.  What is complete under
`build/budgets` is not tuned again.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.command import RECORDED, command
from benchmarks.own_runs import Run, once, place
from benchmarks.results import Table, conditions, milliseconds, publish
from hlotune.cli.progress import watching
from hlotune.deploy.apply import apply
from hlotune.deploy.bench import checked
from hlotune.deploy.inputs import tame_inputs
from hlotune.deploy.timer import Timer
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import ratio
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.search.budget.limits import seconds
from hlotune.search.result import TuneResult
from hlotune.search.tune import tune

FOLDER = Path("build/budgets")
TIMING_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    program: str
    seed: int
    short: Run
    long: Run
    default_s: float
    short_s: float
    long_s: float
    share: float
    """The share of the long budget's speed that the short one has: the time of the long one's
    program over that of the short one's, the median of the pairs.
    """
    low: float
    high: float


def main() -> None:
    options = parsed()
    with ProcessRunner(host_target()) as runner:
        before = conditions(host_target(), runner.properties())
    lines: list[Line] = []
    for seed in range(options.seeds):
        lines.append(measured(options.program, seed, options))
        data = [{**asdict(x), "short": x.short.counted_s, "long": x.long.counted_s} for x in lines]
        publish(table(lines, options.short, options.long), before, data)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default="examples/resnet18.py:frozen")
    parser.add_argument("--short", type=seconds, default=90.0, help="as in 90s, 2m")
    parser.add_argument("--long", type=seconds, default=600.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=30)
    return parser.parse_args()


def measured(source: str, seed: int, options: argparse.Namespace) -> Line:
    program = load(source)
    long, short = (spent(program, source, s, seed) for s in (options.long, options.short))
    long_s, short_s, default_s = called(program, long.database, short.database, options.pairs)
    share = ratio(long_s, short_s)
    return Line(
        program=source, seed=seed, short=short, long=long, default_s=median(default_s),
        short_s=median(short_s), long_s=median(long_s), share=share.median, low=share.low,
        high=share.high,
    )  # fmt: skip


def spent(program: Program, source: str, budget_s: float, seed: int) -> Run:
    def run(path: Path) -> TuneResult:
        with watching() as progress:
            return tune(program, budget_s=budget_s, database=path, seed=seed, progress=progress)

    name = Path(source.replace(":", ".")).name
    return once(place(FOLDER, name, f"{budget_s:g}s", seed), run)


def called(
    program: Program, long: Path, short: Path, pairs: int
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    """Paired samples of both, and some of the default; both are right, or WrongResult is raised."""
    default = jitted(program)
    both = apply(program, database=long), apply(program, database=short)
    inputs, random = tame_inputs(program, default, 0)
    for tuned in both:
        checked(program, tuned, default, [inputs, random])
    timer = Timer(program, inputs, both[0].target, TIMING_S, Turns())
    _, long_s, short_s = timer.paired(*both, pairs)
    _, default_s, _ = timer.paired(default, both[1], pairs)
    return long_s, short_s, default_s


def table(lines: Sequence[Line], short_s: float, long_s: float) -> Table:
    return Table(
        name="budgets",
        columns=[
            "program", ">seed", ">default ms", f">after {short_s:g} s", f">after {long_s:g} s",
            ">share of the speed", ">95 %", ">trials", ">of the budget",
        ],
        rows=[cells(x, short_s, long_s) for x in lines],
        notes=[
            "clock `call`; trials of either run and what it took of its budget, the short one's "
            "first; a budget is kept up to 105 %"
        ],
    )  # fmt: skip


def cells(x: Line, short_s: float, long_s: float) -> list[str]:
    return [
        x.program,
        str(x.seed),
        milliseconds(x.default_s),
        milliseconds(x.short_s),
        milliseconds(x.long_s),
        f"{x.share:.3f}",
        f"{x.low:.3f} to {x.high:.3f}",
        f"{x.short.trials}, {x.long.trials}",
        f"{x.short.counted_s / short_s:.0%}, {x.long.counted_s / long_s:.0%}",
    ]


if __name__ == "__main__":
    command(main, RECORDED)

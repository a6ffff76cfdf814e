"""Whole programs: the default against what a budget of tuning makes of it.

    python -m benchmarks.models --budget 5m
    python -m benchmarks.models --budget 90s --programs unet squeezenet     # names of EXAMPLES

Each program is tuned on a database of its own, so that none borrows from another.  Default and
tuned are held against the oracle, then timed in turns by the clock `call`: blocking calls of the
jitted function.  The two forms of one network, weights as arguments and as constants, also stand
against the better default of the two; those times are of different minutes.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import RECORDED, command
from benchmarks.results import Table, conditions, milliseconds, publish
from hlotune.cli.progress import watching
from hlotune.deploy.apply import apply
from hlotune.deploy.bench import BenchResult, bench
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import Ratio
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import ProgramError
from hlotune.search.budget.budget import seconds
from hlotune.search.finals.whole_program import worst_of
from hlotune.search.result import TuneResult
from hlotune.search.tune import tune

PROGRAMS = ("examples/resnet18.py:model", "examples/resnet18.py:frozen")
EXAMPLES = {
    "mlp": "mlp.py:batch_1000",
    "resnet18": "resnet.py:resnet18",
    "resnet18_nchw": "resnet.py:resnet18_nchw",
    "resnet50": "resnet.py:resnet50",
    "resnet50_nchw": "resnet.py:resnet50_nchw",
    "vgg19": "vgg19.py:model",
    "vgg19_10": "vgg19.py:batch_10",
    "vgg19_100": "vgg19.py:batch_100",
    "vgg19_gradient": "vgg19.py:gradient",
    "vgg19_gradient_10": "vgg19.py:gradient_10",
    "mobilenet": "mobilenet.py:model",
    "mobilenet_nchw": "mobilenet.py:nchw",
    "squeezenet": "squeezenet.py:model",
    "bert_base": "bert_base.py:model",
    "gpt2_prefill": "gpt2.py:prefill",
    "gpt2_decode": "gpt2.py:decode",
    "lstm": "lstm.py:model",
    "dcgan": "dcgan.py:model",
    "unet": "unet.py:model",
    "mnist_training": "mnist_training.py:model",
    "resnet18_training": "resnet.py:training",
    "fire": "fire.py:model",
    "channel_flow": "channel_flow.py:model",
}
"""Programs of `examples/` by the names that `make bench-models MODELS=...` takes."""


@dataclass(frozen=True, slots=True)
class Line:
    source: str
    tuning: TuneResult
    found: BenchResult

    @property
    def network(self) -> str:
        return self.source.partition(":")[0]

    def to_json(self) -> dict[str, Any]:
        tuning = {
            "run": self.tuning.run,
            "trials": self.tuning.trials,
            "known_trials": self.tuning.known_trials,
            "tuning_s": self.tuning.wall_s,
            "kernels": len(self.tuning.kernels),
            "kernels_won": len(self.tuning.won),
        }
        return {"source": self.source, **tuning, **self.found.to_json()}


def main() -> None:
    options = parsed()
    with ProcessRunner(host_target()) as runner:
        before = conditions(host_target(), runner.properties())
    lines: list[Line] = []
    for program in options.programs:
        lines.append(measured(program, options))
        publish(table(lines, options.budget), before, [line.to_json() for line in lines])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="+", metavar="PROGRAM", default=PROGRAMS)
    parser.add_argument("--budget", type=seconds, default=300.0, help="of each, as in 90s, 5m")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument(
        "--database", type=Path, default=Path("build/models.db"),
        help="each program adds its name: build/models.PROGRAM.db",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.programs = [source_of(name) for name in options.programs]
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def source_of(name: str) -> str:
    """A program that is given by the name of an example, or as `load` takes it.

    Raises ProgramError for a name that is neither.
    """
    if name in EXAMPLES:
        return f"examples/{EXAMPLES[name]}"
    if ":" not in name and "." not in name:
        raise ProgramError(
            f"expected a program or one of {', '.join(EXAMPLES)}, got {name!r}; name one of these"
        )
    return name


def database_of(database: Path, source: str) -> Path:
    """The database of one program: `models.examples-mlp.py-model.db`."""
    name = re.sub(r"[^\w.]+", "-", source).strip("-.")
    return database.with_name(f"{database.stem}.{name}{database.suffix}")


def measured(source: str, options: argparse.Namespace) -> Line:
    program, database = load(source), database_of(options.database, source)
    with watching() as progress:
        result = tune(
            program,
            budget_s=options.budget,
            database=database,
            seed=options.seed,
            progress=progress,
        )
    if result.interrupted:
        raise KeyboardInterrupt
    tuned = apply(program, database=database)
    return Line(source, result, bench(program, tuned, pairs=options.pairs, seed=options.seed))


def table(lines: Sequence[Line], budget_s: float) -> Table:
    columns = [
        "program", ">default ms", ">tuned ms", ">speedup", ">95 %", "proven",
        ">over the better default", ">kernels won", ">trials", ">tuner s", ">error", ">default's",
    ]  # fmt: skip
    return Table(
        name="models",
        columns=columns,
        rows=[cells(line, lines) for line in lines],
        notes=[
            f"clock `call`; {budget_s:g} s of tuning each; errors are relative RMS against the "
            "oracle, of the worst result",
            "proven: what the interval says; with 1 inside it proves no difference",
            begun(lines),
        ],
    )


def begun(lines: Sequence[Line]) -> str:
    """What was known before; a command that goes on from an interrupted one finds some."""
    known = [f"{x.tuning.known_trials} of {x.source}" for x in lines if x.tuning.known_trials]
    if known:
        return f"trials known before, from a database of each program: {', '.join(known)}"
    return "each program begins from an empty database of its own"


def cells(line: Line, lines: Sequence[Line]) -> list[str]:
    ratio, worst = line.found.speedup, worst_of(line.found.accuracy)
    default_s, tuned_s = median(line.found.default_s), median(line.found.tuned_s)
    better_s = min(median(x.found.default_s) for x in lines if x.network == line.network)
    error = default_error = "-"
    if worst is not None:
        error = f"{worst.tuned_error:.2g}"
        default_error = "-" if worst.default_error is None else f"{worst.default_error:.2g}"
    return [
        line.source,
        milliseconds(default_s),
        milliseconds(tuned_s),
        f"{ratio.median:.2f}",
        f"{ratio.low:.2f} to {ratio.high:.2f}",
        proven(ratio),
        f"{better_s / tuned_s:.2f}",
        f"{len(line.tuning.won)} of {len(line.tuning.kernels)}",
        str(line.tuning.trials),
        f"{line.tuning.wall_s:.0f}",
        error,
        default_error,
    ]


def proven(ratio: Ratio) -> str:
    if ratio.is_faster:
        return "faster"
    return "slower" if ratio.high < 1 else "nothing"


if __name__ == "__main__":
    command(main, RECORDED)

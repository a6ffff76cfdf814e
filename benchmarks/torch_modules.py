"""Modules of PyTorch: tuned kernels against PyTorch's own compiler and eager mode, in one process.

    python -m benchmarks.torch_modules --database tuning.db
    python -m benchmarks.torch_modules --programs examples/resnet18_torch.py:model --budget 3m

Each program is a factory of a module and its tensors.  With a budget it is tuned first, on the
database.  The sides are timed in turns by blocking calls on the same tensors, each call behind two
of the same side: eager, `torch.compile` with freezing (weights as constants), `hlotune.compile`,
and `torch.compile(backend="hlotune")`.  It needs torch and a C++ compiler.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import command
from benchmarks.results import Table, conditions, milliseconds, publish
from hlotune.cli.progress import watching
from hlotune.deploy.compile import compile as compiled
from hlotune.deploy.dynamo import backend
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import Ratio, ratio
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.search.budget.limits import seconds
from hlotune.search.tune import tune

PROGRAMS = ("examples/resnet18_torch.py:model", "examples/resnet18_torch.py:channels_last")
FROZEN, TUNED = "torch.compile, freezing", "hlotune.compile"
GRAPHS = 'torch.compile(backend="hlotune")'
WARM_CALLS = 2
Side = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Line:
    program: str
    side: str
    samples_s: tuple[float, ...]
    tuned_s: tuple[float, ...]
    """Seconds per call of `hlotune.compile` in the same rounds."""
    error: float
    """The largest difference from eager's result, divided by the largest value of that."""

    @property
    def speed(self) -> Ratio:
        """The speedup of `hlotune.compile` over this side."""
        return ratio(self.samples_s, self.tuned_s)


def main() -> None:
    options = parsed()
    target = host_target()
    with ProcessRunner(target) as runner:
        before = conditions(target, runner.properties())
    torch = importlib.import_module("torch")
    torch.set_num_threads(target.threads)
    lines: list[Line] = []
    for program in options.programs:
        module, tensors = made(program)
        if options.budget:
            with watching() as progress:
                tune(
                    load(module, *tensors),
                    budget_s=options.budget,
                    database=options.database,
                    progress=progress,
                )
        with torch.no_grad():
            lines += lines_of(program, sides(module, tensors, options.database), options.rounds)
        publish(table(lines, torch.__version__), before, [described(line) for line in lines])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", nargs="+", metavar="PROGRAM", default=PROGRAMS)
    parser.add_argument("--database", type=Path, default=Path("build/torch_modules.db"))
    parser.add_argument("--budget", type=seconds, help="of tuning each first, as in 90s")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def made(program: str) -> tuple[Any, tuple[Any, ...]]:
    """The module and its tensors that the factory `path.py:name` returns."""
    path, _, name = program.rpartition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    found: tuple[Any, tuple[Any, ...]] = getattr(module, name)()
    return found


def sides(module: Any, tensors: tuple[Any, ...], database: Path) -> dict[str, Side]:
    """The sides by name, each compiled by a first call."""
    torch = importlib.import_module("torch")
    settings: Any = importlib.import_module("torch._inductor.config")
    settings.freezing = True
    ours = compiled(module, database=database)
    frozen = torch.compile(module)
    graphs = torch.compile(module, backend=backend, options={"database": str(database)})
    found: dict[str, Side] = {
        "eager": lambda: module(*tensors),
        FROZEN: lambda: frozen(*tensors),
        TUNED: lambda: ours(*tensors),
        GRAPHS: lambda: graphs(*tensors),
    }
    for side in found.values():
        side()
    return found


def lines_of(program: str, found: Mapping[str, Side], rounds: int) -> list[Line]:
    wanted = found["eager"]()
    errors = {n: float((f() - wanted).abs().max() / wanted.abs().max()) for n, f in found.items()}
    samples: dict[str, list[float]] = {name: [] for name in found}
    names = list(found)
    for k in range(rounds):
        turned = names[k % len(names) :] + names[: k % len(names)]
        for name in turned if k % 2 else turned[::-1]:
            samples[name].append(sample(found[name]))
    ours = tuple(samples[TUNED])
    return [Line(program, n, tuple(s), ours, errors[n]) for n, s in samples.items()]


def sample(side: Side) -> float:
    """Seconds of one call, which follows `WARM_CALLS` calls of the same side."""
    for _ in range(WARM_CALLS):
        side()
    start = time.perf_counter()
    side()
    return time.perf_counter() - start


def described(line: Line) -> dict[str, Any]:
    speed = line.speed
    return {
        "program": line.program, "side": line.side, "samples_s": line.samples_s,
        "error": line.error, "speed": [speed.median, speed.low, speed.high],
    }  # fmt: skip


def table(lines: Sequence[Line], version: str) -> Table:
    return Table(
        name="torch_modules",
        columns=["program", "side", ">ms", ">hlotune.compile is faster by", ">95 %", ">error"],
        rows=[cells(line) for line in lines],
        notes=[
            f"torch {version}; blocking calls in turns; error: the largest difference from eager's "
            "result over its largest value"
        ],
    )


def cells(line: Line) -> list[str]:
    speed = line.speed
    return [
        line.program,
        line.side,
        milliseconds(median(line.samples_s)),
        f"{speed.median:.2f}",
        f"{speed.low:.2f} to {speed.high:.2f}",
        f"{line.error:.1e}",
    ]


if __name__ == "__main__":
    command(main)

"""Tuning beside a process that keeps one processor busy: what is lost, and what is declared.

    python -m benchmarks.busy examples/mlp.py:model --budget 40s --seeds 0 1 2

Each seed is tuned twice from an empty database: on the quiet machine, and while a process of
another session spins on the last processor.  Then both tuned programs are called in turns on the
quiet machine, and `tune bench` times what the busy run declared, in several processes one after
the other: a declared interval holds where the median of these is inside.  A seed that is complete
under `build/busy` is not tuned again.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.budgets import called
from benchmarks.command import command
from benchmarks.results import Table, conditions, publish
from hlotune.codegen.runtime.thread_pool import processors
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import Ratio, ratio
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.atomic_files import whole
from hlotune.search.budget.limits import seconds
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.listing import runs
from hlotune.tuning_logs.render import load_text
from hlotune.tuning_logs.report import Report, report

FOLDER = Path("build/busy")
WHOLE = "whole program"
NOISE = ("device", "timeout", "crash", "wrong_result")
"""Kinds of failure that a sound candidate may have where the machine is to blame."""
SPIN = """
import os, sys
if len(sys.argv) > 1 and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    pass
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An interval that the busy run declared, and the speedup of the same on the quiet machine."""

    what: str
    speedup: float
    low: float
    high: float
    quiet: Sequence[float]
    """One figure a process."""

    @property
    def holds(self) -> bool:
        return self.low <= median(self.quiet) <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One run, from its own records."""

    trials: int
    barred: int
    """Candidates that failed by a kind of `NOISE`, and champions that were taken back."""
    load: str
    """What the run says of other processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    seed: int
    quiet: Tuned
    busy: Tuned
    speed: Ratio
    """Time of the quiet run's program over that of the busy run's, in turns."""
    declared: tuple[Declared, ...]


def main() -> None:
    options = parsed()
    with ProcessRunner(host_target()) as runner:
        before = conditions(host_target(), runner.properties())
    lines = [once(options, seed) for seed in options.seeds]
    publish(table(lines, options.budget), before, [asdict(x) for x in lines])
    publish(declared_table(lines), before, [asdict(d) for x in lines for d in x.declared])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", nargs="?", default="examples/mlp.py:model")
    parser.add_argument("--budget", type=seconds, default=40.0, help="of either run, as in 40s, 2m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--processes", type=int, default=3, help="that time the quiet figures")
    parser.add_argument("--unbound", action="store_true", help="the spinning process may move")
    return parser.parse_args()


def once(options: argparse.Namespace, seed: int) -> Line:
    """A seed's line as it was kept, or measured now and kept."""
    where = "unbound" if options.unbound else "bound"
    name = Path(options.program.replace(":", ".")).name
    kept = FOLDER / f"{name}.{options.budget:g}s.{where}.{seed}.json"
    if kept.exists():
        return line_of(json.loads(kept.read_text(encoding="utf-8")))
    FOLDER.mkdir(parents=True, exist_ok=True)
    line = measured(options, seed, kept)
    with whole(kept) as part:
        part.write_text(json.dumps(asdict(line)), encoding="utf-8")
    return line


def line_of(data: dict[str, Any]) -> Line:
    """What `asdict` made a mapping of."""
    return Line(
        seed=data["seed"],
        quiet=Tuned(**data["quiet"]),
        busy=Tuned(**data["busy"]),
        speed=Ratio(**data["speed"]),
        declared=tuple(Declared(**d) for d in data["declared"]),
    )


def measured(options: argparse.Namespace, seed: int, kept: Path) -> Line:
    program, budget_s = options.program, options.budget
    path, busy_path = (kept.with_suffix(f".{name}.db") for name in ("quiet", "busy"))
    quiet = tuned(program, budget_s, seed, path)
    with spinning(bound=not options.unbound):
        busy = tuned(program, budget_s, seed, busy_path)
    quiet_s, busy_s, _ = called(load(program), path, busy_path, 30)
    again = [benched(program, busy_path) for _ in range(options.processes)]
    return Line(
        seed=seed,
        quiet=quiet,
        busy=busy,
        speed=ratio(quiet_s, busy_s),
        declared=tuple(declared(found(busy_path), again)),
    )


@contextmanager
def spinning(*, bound: bool) -> Iterator[None]:
    """A process of another session keeps the last processor busy, or any one, for the block."""
    where = [str(processors()[-1])] if bound else []
    child = subprocess.Popen([sys.executable, "-c", SPIN, *where], start_new_session=True)
    try:
        yield
    finally:
        child.kill()
        child.wait()


def tuned(program: str, budget_s: float, seed: int, database: Path) -> Tuned:
    """One `tune run` from an empty database."""
    for part in database.parent.glob(f"{database.name}*"):
        part.unlink()
    tune("run", program, "--budget", f"{budget_s:g}s", "--seed", str(seed), database=database)
    said = found(database)
    noise = sum(f.count for f in said.failures if f.kind in NOISE)
    taken_back = sum(k.withdrawn is not None for k in said.kernels)
    load = load_text(said.others_share)
    return Tuned(trials=said.trials, barred=noise + taken_back, load=load)


def tune(*words: str, database: Path) -> str:
    """What a `tune` command prints; it raises CalledProcessError where the command fails."""
    line = [sys.executable, "-m", "hlotune", *words, "--database", str(database)]
    return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout


def found(path: Path) -> Report:
    with Database(path, create=False) as database:
        return report(database, runs(database)[0].id)


def benched(program: str, database: Path) -> dict[str, float]:
    """Speedups by what they are of, as `tune bench` finds them in a process of its own."""
    said: dict[str, Any] = json.loads(tune("bench", program, "--json", database=database))
    kernels = {k["kernel"]: k["speedup"] for k in said["kernels"] if k["speedup"] is not None}
    return {WHOLE: said["speedup"], **kernels}


def declared(said: Report, again: Sequence[dict[str, float]]) -> Iterator[Declared]:
    """What the run declared of the whole program, and of each kernel that it replaced."""
    figures = [(WHOLE, WHOLE, said.whole)]
    figures += [(k.key, k.label, k.champion) for k in said.kernels if k.won]
    for key, what, figure in figures:
        if figure is not None and all(key in times for times in again):
            yield Declared(
                what=what,
                speedup=figure.speedup,
                low=figure.speedup_low,
                high=figure.speedup_high,
                quiet=tuple(times[key] for times in again),
            )


def table(lines: Sequence[Line], budget_s: float) -> Table:
    holds = [d.holds for x in lines for d in x.declared]
    return Table(
        name="busy",
        columns=[
            ">seed", ">trials quiet", ">busy", ">share", ">speed kept", ">95 %",
            ">intervals that hold", ">barred quiet", ">busy", "said of the load",
        ],
        rows=[cells(x) for x in lines],
        notes=[
            f"{budget_s:g} s either run; speed kept: time of the quiet run's program over the busy "
            "run's, both called in turns on the quiet machine",
            f"{sum(holds)} of {len(holds)} declared intervals hold the quiet figure",
        ],
    )  # fmt: skip


def cells(x: Line) -> list[str]:
    return [
        str(x.seed),
        str(x.quiet.trials),
        str(x.busy.trials),
        f"{x.busy.trials / max(1, x.quiet.trials):.2f}",
        f"{x.speed.median:.3f}",
        f"{x.speed.low:.3f} to {x.speed.high:.3f}",
        f"{sum(d.holds for d in x.declared)} of {len(x.declared)}",
        str(x.quiet.barred),
        str(x.busy.barred),
        x.busy.load,
    ]


def declared_table(lines: Sequence[Line]) -> Table:
    return Table(
        name="busy_intervals",
        columns=[">seed", "of", ">declared busy", ">95 %", ">quiet", ">processes", "holds"],
        rows=[
            [
                str(x.seed),
                d.what,
                f"{d.speedup:.2f}",
                f"{d.low:.2f} to {d.high:.2f}",
                f"{median(d.quiet):.2f}",
                f"{min(d.quiet):.2f} to {max(d.quiet):.2f}",
                "yes" if d.holds else "no",
            ]
            for x in lines
            for d in x.declared
        ],
        notes=["quiet: the median of `tune bench` in several processes, and its range"],
    )


if __name__ == "__main__":
    command(main)

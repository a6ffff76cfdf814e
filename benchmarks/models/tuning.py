"""Tunes one example on a database of its own, in a process of its own, and says what came of it.

    python -m benchmarks.models.tuning resnet18 --seconds 60

A run that is through is not made again, as long as versions and budget are the same.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.command import command
from benchmarks.models.examples import EXAMPLES, Example
from benchmarks.models.networks import NETWORKS
from benchmarks.own_runs import Run, once, place
from hlotune.cli.progress import watching
from hlotune.search.result import TuneResult
from hlotune.search.tune import tune
from hlotune.tuning_logs.best_options import is_of_options
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.report import report

FOLDER = Path("build/models")
RUNS = FOLDER / "runs"
CLOSING_S = 300.0
"""What a run may take beyond its budget before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What became of the run of an example."""

    database: str = ""
    seconds: float = 0.0
    """The budget."""
    trials: int = 0
    wall_s: float = 0.0
    kernels: int = 0
    won: int = 0
    failure: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=EXAMPLES, metavar="NAME")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--options", type=float, default=0.0, help="seconds for XLA's options")
    asked = parser.parse_args()
    print(json.dumps(asdict(tuned(EXAMPLES[asked.name], asked.seconds, asked.options))))


def tuned_apart(example: Example, seconds: float, options_s: float = 0.0) -> Tuning:
    """Does what `tuned` does, in a process of its own, which may crash or hang; its progress is
    seen.

    Raises KeyboardInterrupt where the run was interrupted.
    """
    asked = [sys.executable, "-m", "benchmarks.models.tuning", example.name]
    asked += ["--seconds", str(seconds), "--options", str(options_s)]
    limit_s = seconds + options_s + CLOSING_S
    try:
        done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Tuning(seconds=seconds, failure=f"no end within {limit_s:g} s")
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        return Tuning(seconds=seconds, failure=f"the tuner ended with {done.returncode}")
    return Tuning(**json.loads(done.stdout.splitlines()[-1]))


def tuned(example: Example, seconds: float, options_s: float = 0.0) -> Tuning:
    """The run of an example, or of the one whose schedules it takes; of a network also a search of
    XLA's options for `options_s`.
    """
    whose = EXAMPLES[example.schedules_of] if example.schedules_of else example

    def run(path: Path) -> TuneResult:
        with watching() as progress:
            return tune(whose.program(), budget_s=seconds, database=path, progress=progress)

    found = once(place(RUNS, whose.name, f"{seconds:g}s"), run)
    if example.name in NETWORKS:
        search_options_once(example, found.database, options_s)
    kernels, won = decided(found)
    return Tuning(
        database=str(found.database), seconds=seconds, trials=found.trials,
        wall_s=found.counted_s, kernels=kernels, won=won,
    )  # fmt: skip


def search_options_once(example: Example, database: Path, seconds: float) -> None:
    """Searches options of XLA for a network, where its database has none and there is time."""
    with Database(database, create=False) as records:
        before = any(map(is_of_options, records.query("select options from runs")))
    if seconds and not before:
        asked = [sys.executable, "-m", "hlotune", "xla", example.path, "--budget", f"{seconds}"]
        subprocess.run([*asked, "--database", str(database)], stdout=sys.stderr, check=False)


def decided(run: Run) -> tuple[int, int]:
    """How many kernels were searched for, and how many of them have a schedule of ours."""
    with Database(run.database, create=False) as database:
        (row,) = database.query(
            "select id from runs where finished is not null order by started limit 1"
        )
        found = report(database, row["id"])
    return len(found.kernels), found.won


if __name__ == "__main__":
    command(main)

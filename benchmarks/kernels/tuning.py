"""Tunes one case on a database of its own, in a process of its own, and says what came of it.

python -m benchmarks.kernels.tuning 'softmax 512x1024' --seconds 20
"""

import argparse
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import jax

import hlotune
from benchmarks.command import command
from benchmarks.kernels.case import Case
from benchmarks.kernels.cases import CASES
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.modes import fast_time_s
from hlotune.schedules.ir.flops import arithmetic_type
from hlotune.schedules.patterns.row_limit import seconds_of_bytes
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.first import first
from hlotune.search.tasks import tasks
from hlotune.tuning_logs.database import Database

FOLDER = Path("build/kernels")
PEAKS = "peaks.db"
"""A database that has the properties of this machine, measured once for all cases."""
CLOSING_S = 240.0
"""What a run may take beyond its budget before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What became of a case; seconds are of one call of all its kernels together."""

    kernels: int = 0
    won: int = 0
    trials: int = 0
    wall_s: float = 0.0
    first_s: float | None = None
    """The time of the kernels alone with the first candidates; None where one of them failed or
    was never timed, or where there is no kernel.
    """
    default_s: float | None = None
    limit_s: float | None = None
    """The least time of the whole program by its bytes and multiply-adds."""
    skipped: tuple[str, ...] = ()
    failure: str = ""


def database_of(folder: Path, case: str) -> Path:
    return folder / (re.sub(r"[^\w.]+", "-", case).strip("-.") + ".db")


def first_database_of(folder: Path, case: str) -> Path:
    """With the first candidates of a case, which no search has followed."""
    return database_of(folder, f"{case} first")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=CASES, metavar="CASE")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps(asdict(tuned(CASES[options.case], options.seconds, options.folder))))


def tuned_apart(case: Case, seconds: float, folder: Path) -> Tuning:
    """Does what `tuned` does, in a process of its own, which may crash or hang."""
    asked = [sys.executable, "-m", "benchmarks.kernels.tuning", case.name]
    asked += ["--seconds", str(seconds), "--folder", str(folder)]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=seconds + CLOSING_S)
    except subprocess.TimeoutExpired:
        return Tuning(failure=f"no end within {seconds + CLOSING_S:g} s")
    if done.returncode:
        last = (done.stderr.strip() or "no word").splitlines()[-1]
        return Tuning(failure=f"{last[:200]}")
    return read(json.loads(done.stdout.splitlines()[-1]))


def read(fields: dict[str, Any]) -> Tuning:
    return Tuning(**{**fields, "skipped": tuple(fields["skipped"])})


def tuned(case: Case, seconds: float, folder: Path) -> Tuning:
    """The first candidates, and a run from an empty database; no run where there are no seconds."""
    path, target = database_of(folder, case.name), host_target()
    path_of_first = first_database_of(folder, case.name)
    for part in (p for x in (path, path_of_first) for p in folder.glob(f"{x.name}*")):
        part.unlink()
    with jax.enable_x64(case.has_wide_numbers):
        program = hlotune.load(case.compiled(), *case.values())
    found, skipped = tasks(sites(program), target)
    reasons = tuple(f"{s.label}: {s.reason}" for s in skipped)
    if found:
        first(program, database=path_of_first)
    if not (found and seconds):
        with Database(folder / PEAKS) as peaks:
            limit_s = limit_of(program, target, peaks.properties(target))
        return Tuning(kernels=len(found), limit_s=limit_s, skipped=reasons)
    with Database(folder / PEAKS) as peaks, Database(path) as database:
        if (known := peaks.properties(target)) is not None:
            database.keep_properties(target, known)
        result = hlotune.tune(program, budget_s=seconds, database=database)
        properties = database.properties(target)
        if properties is not None and known is None:
            peaks.keep_properties(target, properties)
        times = [first_and_default(database, t.kernel.key) for t in found]
        weights = [t.weight for t in found]
    first_s = sum(w * first for w, (first, _) in zip(weights, times, strict=True))
    return Tuning(
        kernels=len(result.kernels), won=len(result.won), trials=result.trials,
        wall_s=result.wall_s, first_s=first_s if times and first_s < inf else None,
        default_s=sum(w * d for w, (_, d) in zip(weights, times, strict=True)) or None,
        limit_s=limit_of(program, target, properties), skipped=reasons,
    )  # fmt: skip


def first_and_default(database: Database, kernel: str) -> tuple[float, float]:
    """Seconds of a kernel's first candidate, infinite where it failed, and of its default."""
    rows = database.query(
        """select schedule = :default as is_default, samples_s from trials where kernel = :kernel
        order by number""",
        {"kernel": kernel, "default": DEFAULT.to_json()},
    )
    found: dict[bool, float] = {}
    for row in rows:
        samples = json.loads(row["samples_s"]) if row["samples_s"] else []
        found.setdefault(bool(row["is_default"]), fast_time_s(samples) if samples else inf)
    return found.get(False, inf), found.get(True, 0.0)


def limit_of(program: Program, target: CpuTarget, properties: Properties | None) -> float | None:
    """Bytes of arguments and results once, and the arithmetic of all kernels at peak."""
    if properties is None:
        return None
    graph = program.graph
    moved = sum(t.bytes for t in (*graph.argument_types, *graph.result_types))
    flops_s = 0.0
    for task in tasks(sites(program), target)[0]:
        peak = properties.flops_per_s.get(arithmetic_type(task.compute), inf)
        flops_s += task.weight * task.flops / peak
    return max(seconds_of_bytes(moved, target, properties), flops_s)


if __name__ == "__main__":
    command(main)

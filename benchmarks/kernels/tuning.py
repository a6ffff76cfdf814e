"""Tunes one case on a database of its own, in a process of its own, and says what came of it.

python -m benchmarks.kernels.tuning 'softmax 512x1024' --seconds 20
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
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
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.modes import fast_time_s
from hlotune.measure.timing.peaks import host_properties
from hlotune.schedules.patterns.row_limit import (
    moved_bytes,
    seconds_of_bytes,
    seconds_of_operations,
)
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.first import first
from hlotune.search.tasks import Task, tasks
from hlotune.tuning_logs.database import Database

FOLDER = Path("build/kernels")
PEAKS = "peaks.db"
"""A database that has the properties of this machine, measured once for all cases."""
BYTES_FIRST = 3
"""How many times longer bytes take than operations, at least, in a case that waits for bytes."""
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
    """The least time of the whole program by its bytes and operations."""
    moved_bytes: int = 0
    """Bytes of its arguments and results that must move, each once."""
    level: str = ""
    """The smallest cache that holds these bytes from call to call, or memory."""
    bytes_s: float | None = None
    operations_s: float | None = None
    """What makes the limit: the least times by bytes and by operations alone."""
    skipped: tuple[str, ...] = ()
    failure: str = ""

    @property
    def waits_for_bytes(self) -> bool:
        """Whether the least time by bytes is at least three times that by operations."""
        if self.bytes_s is None or self.operations_s is None:
            return False
        return self.bytes_s >= BYTES_FIRST * self.operations_s


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
    return Tuning(**{**fields, "skipped": tuple(fields.get("skipped", ()))})


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
    limits = limits_of(program, found, target, known_properties(folder, target))
    if not (found and seconds):
        return Tuning(kernels=len(found), skipped=reasons, **limits)
    with Database(path) as database:
        database.keep_properties(target, known_properties(folder, target))
        result = hlotune.tune(program, budget_s=seconds, database=database)
        times = [first_and_default(database, t.kernel.key) for t in found]
        weights = [t.weight for t in found]
    first_s = sum(w * first for w, (first, _) in zip(weights, times, strict=True))
    return Tuning(
        kernels=len(result.kernels), won=len(result.won), trials=result.trials,
        wall_s=result.wall_s, first_s=first_s if times and first_s < inf else None,
        default_s=sum(w * d for w, (_, d) in zip(weights, times, strict=True)) or None,
        skipped=reasons, **limits,
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


def known_properties(folder: Path, target: CpuTarget) -> Properties:
    """The peaks of this machine, measured by the first case that asks, and kept for all others."""
    with Database(folder / PEAKS) as peaks:
        known = peaks.properties(target)
        if known is None:
            with alone():
                known = host_properties(target)
            peaks.keep_properties(target, known)
    return known


def limits_of(
    program: Program, found: Sequence[Task], target: CpuTarget, properties: Properties
) -> dict[str, Any]:
    """The limits of a `Tuning`: bytes of arguments and results once, where kernels read all of
    them, and the operations of all kernels at peak."""
    graph = program.graph
    moved = sum(t.bytes for t in (*graph.argument_types, *graph.result_types))
    by_kernels = sum(task.weight * moved_bytes(task.compute) for task in found)
    moved = min(moved, int(by_kernels) or moved)
    bytes_s = seconds_of_bytes(moved, target, properties)
    operations_s = sum(
        task.weight * seconds_of_operations(task.compute, target, properties) for task in found
    )
    return {
        "limit_s": max(bytes_s, operations_s), "moved_bytes": moved, "bytes_s": bytes_s,
        "operations_s": operations_s, "level": level_of(moved, target),
    }  # fmt: skip


def level_of(moved: int, target: CpuTarget) -> str:
    """The smallest cache that holds so many bytes, of all threads' first and second ones."""
    sizes = {
        "L1": target.threads * target.l1_bytes, "L2": target.threads * target.l2_bytes,
        "L3": target.l3_bytes,
    }  # fmt: skip
    return next((name for name, size in sizes.items() if moved <= size), "memory")


if __name__ == "__main__":
    command(main)

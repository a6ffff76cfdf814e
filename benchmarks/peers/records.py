"""What the database has for a case, and its kernel's own time: call less an empty call."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Literal

from benchmarks.cases import FROZEN, source
from benchmarks.peers.contestants import Weights
from hlotune.codegen.built import Built
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import CacheMode, Candidate
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.decisions import decision

Status = Literal["tuned", "kept xla", "not tuned"]


@dataclass(frozen=True, slots=True)
class Record:
    kernel: Kernel
    schedule: Schedule
    status: Status
    reason: str = ""
    """Why this schedule, as `tune explain` says it."""


def record(
    case: str, weights: Weights, database: Path, target: CpuTarget, cache: CacheMode = "model"
) -> Record:
    """The record of the one kernel that a case is, as it was tuned in a cache mode."""
    kernel = kernel_of(case, weights)
    if not database.exists():
        return Record(kernel, DEFAULT, "not tuned", "there is no database")
    with Database(database, create=False) as opened:
        found = decision(opened, kernel.key, **conditions(target, toolchain(), cache))
    if found.schedule != DEFAULT:
        return Record(kernel, found.schedule, "tuned", found.reason)
    return Record(kernel, DEFAULT, "kept xla" if found.final else "not tuned", found.reason)


@cache
def kernel_of(case: str, weights: Weights) -> Kernel:
    """The one that a case is; kept, for its operands are drawn and its program is traced for it."""
    (site, *_) = sites(load(source(case + FROZEN if weights == "constants" else case)))
    return site.kernel


@dataclass(frozen=True, slots=True)
class OwnTime:
    """The time of a kernel by the clock `kernel`, warm and alone."""

    seconds: float
    peak_flop_per_s: float | None
    """The peak of multiply-adds in turns with the kernel; None where its operands have no such
    peak, or where reading limits it.
    """
    read_bytes_per_s: float | None = None
    """The rate of reading as many bytes in turns with the kernel, where reading limits it; None
    elsewhere.
    """


def own_time(
    found: Record,
    element: str,
    builder: ProcessBuilder,
    runner: ProcessRunner,
    *,
    read_bytes: int = 0,
) -> OwnTime | None:
    """None where nothing was tuned, or fails now.

    Args:
        element: the operands' type, as peaks name it.
        read_bytes: what the kernel moves, where that limits it: then a read of as many has the
            turns that multiply-adds have elsewhere.
    """
    if found.status == "not tuned":
        return None
    if found.schedule == DEFAULT:
        return OwnTime(runner.default(found.kernel, cache="warm").time_s, None)
    candidate = Candidate(found.kernel, found.schedule)
    (built,) = builder.build([candidate])
    (trial,) = runner.measure(found.kernel, [(candidate, built)], cache="warm")
    if trial.time_s is None or not isinstance(built, Built):
        return None
    if read_bytes:
        beside = runner.beside_read(found.kernel, built, read_bytes, cache="warm")
        return OwnTime(beside.time_s, None, median(beside.work_per_s))
    if element not in runner.properties().flops_per_s:
        return OwnTime(trial.time_s, None)
    beside = runner.beside_peak(found.kernel, built, element, cache="warm")
    return OwnTime(beside.time_s, median(beside.work_per_s))

"""The report of a run, from records alone: what was won, what was kept, and how sure that is.

A kernel that kept XLA's own code counts as 1.00 and as not won.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from hlotune.measure.timing.modes import slow_time_s
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.best_options import BestOptions, best_options
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired, Summary
from hlotune.tuning_logs.listing import FailureLine, failures, find_run
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.wrong_defaults import default_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Default against tuned, timed in turns: medians, the ratio with its 95 % interval, samples."""

    default_s: float
    """Seconds of the fast mode, where the default has two."""
    default_slow_s: float | None
    """Seconds of the slow mode; None where the default has one."""
    tuned_s: float
    speedup: float
    speedup_low: float
    speedup_high: float
    default_samples_s: tuple[float, ...]
    tuned_samples_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    key: str
    label: str
    sites: int
    """Places of the program where the kernel can stand."""
    calls: float
    """How often those run in one run of the program."""
    trials: int
    """Candidates of ours: the default is timed as well, and is none."""
    failures: int
    default_error: float
    """The error of XLA's own result, in units of the tolerance of candidates: above 1 it does not
    agree with the reference; 0 where it was not checked."""
    decision: str
    """`tuned`, `kept xla`, or `not compared` where the run ended before that."""
    withdrawn: str | None = None
    """Why the champion was taken back after it had won."""
    won: bool = False
    algorithm: str | None = None
    """The algorithm of the best candidate, whether it won or not."""
    champion: Speedup | None = None
    """The best candidate against the default, whether it won or not."""
    used_s: float | None = None
    """Time of what `apply` uses: the champion's where it won, else the default's."""
    speedup: float = 1.0
    """The speedup of what `apply` uses: 1 unless won."""
    flop_per_s: float | None = None
    """The speed of what `apply` uses; None where the arithmetic was not recorded."""
    share_of_peak: float | None = None
    """The share of the measured multiply-add peak of its element type, all threads."""


@dataclass(frozen=True, slots=True)
class SkippedKernel:
    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    run: str
    program: str
    source: str
    target: str
    fingerprint: str
    toolchain: dict[str, str]
    cache: str
    threads: int
    numerics: str
    seed: int
    started: str
    finished: str | None
    wall_s: float | None
    waited_s: float
    """The part of it that passed while another tuner was at work."""
    away_s: float
    """The part of it for which the process was suspended."""
    others_share: float | None
    """The share of the processors that other processes took meanwhile; None where it is unknown."""
    overrun: str
    """By how much the run missed its budget, and where; nothing where it kept it."""
    fastest_probe_s: float | None
    """The median of a fixed probe beside the trials of a batch, in the batch with the least."""
    slowest_probe_s: float | None
    """The same median in the batch with the most: so far apart are times of different batches."""
    trials: int
    failures: tuple[FailureLine, ...]
    kernels: tuple[KernelReport, ...]
    """Most time in the default program first."""
    whole: Speedup | None
    """The whole program; None where it was not timed."""
    relative_error: float | None
    """Root mean square, of the tuned program's worst result; None where it was not checked."""
    default_relative_error: float | None
    """The default's, of the same result; None where the tuned result was held against it."""
    wrong_default: str = ""
    """How results of the default program do not agree with the reference, where they do not."""
    unproven: str = ""
    """What the whole program took where there was time for too few calls to prove a difference."""
    skipped: tuple[SkippedKernel, ...] = ()
    """Kernels that were left to the default compiler without a search or a comparison, and those
    whose search ended early."""
    notes: tuple[str, ...] = ()
    """What has to be said beside all figures, as that constants of the program are missing."""
    best_options: BestOptions | None = None
    """What XLA's own options make of the program; None where nobody searched them."""

    @property
    def won(self) -> int:
        return sum(kernel.won for kernel in self.kernels)


def report(database: Database, name: str) -> Report:
    """The report of a run (an id or its prefix), or of the newest run of a program (name or key).

    Raises NoRecord where there is none.
    """
    run = _run(database, find_run(database, name))
    kernels = sorted(_kernels(database, run), key=_default_share)
    summary = rows.summary_of(run["summary"])
    return Report(
        run=run["id"],
        program=run["program_name"] or "",
        source=run["source"] or "",
        target=rows.target_title(run["device"], run["identity"]),
        fingerprint=run["target"],
        toolchain=dict(json.loads(run["versions"])),
        cache=run["cache"],
        threads=run["threads"],
        numerics=run["numerics"],
        seed=run["seed"],
        started=run["started"],
        finished=run["finished"],
        wall_s=_wall_s(run, summary),
        waited_s=summary.waited_s if summary else 0.0,
        away_s=summary.away_s if summary else 0.0,
        others_share=summary.others_share if summary else None,
        overrun=summary.overrun if summary else "",
        fastest_probe_s=summary.fastest_probe_s if summary else None,
        slowest_probe_s=summary.slowest_probe_s if summary else None,
        trials=sum(kernel.trials for kernel in kernels),
        failures=failures(database, run["id"]),
        kernels=tuple(kernels),
        whole=_speedup(summary.whole) if summary and summary.whole else None,
        relative_error=summary.error if summary else None,
        default_relative_error=summary.default_error if summary else None,
        wrong_default=summary.wrong_default if summary else "",
        unproven=summary.unproven if summary else "",
        skipped=tuple(SkippedKernel(*skip) for skip in summary.skipped) if summary else (),
        notes=rows.notes_of(run["notes"]),
        best_options=best_options(database, run),
    )


def _run(database: Database, identity: str) -> Row:
    """A run with its target, its toolchain and its program."""
    return database.query(
        """select runs.*, targets.name as device, identity, properties, versions,
            programs.name as program_name, source
        from runs join targets on fingerprint = target join toolchains on toolchains.key = toolchain
        left join programs on programs.key = program where runs.id = :id""",
        {"id": identity},
    )[0]


def to_json(report: Report) -> str:
    """The report as JSON, by `report.schema.json`: units stand in the names."""
    return json.dumps({"version": 13, "won": report.won, **asdict(report)}, indent=2)


def _kernels(database: Database, run: Row) -> list[KernelReport]:
    """The kernels that the run tried or compared."""
    found = database.query(
        """select key, coalesce(kernels.label, '') as label,
            (select count(*) from sites where kernel = key and program = :program) as sites,
            (select coalesce(sum(weight), 0) from sites
                where kernel = key and program = :program) as calls,
            (select count(*) from trials
                where kernel = key and run = :id and schedule <> :default) as trials,
            (select count(failure_kind) from trials where kernel = key and run = :id) as failures
        from kernels where key in (select kernel from trials where run = :id
            union select kernel from finals where run = :id)""",
        {"id": run["id"], "program": run["program"], "default": DEFAULT.to_json()},
    )
    finals = {f["kernel"]: f for f in database.query("select * from finals where run = :id", run)}
    peaks = json.loads(run["properties"] or "{}").get("flops_per_s", {})
    return [_kernel(database, run["id"], row, finals.get(row["key"]), peaks) for row in found]


def _kernel(
    database: Database, run: str, counts: Row, final_row: Row | None, peaks: dict[str, float]
) -> KernelReport:
    final = _readable(database, final_row)
    counts["default_error"] = default_error(database, counts["key"], run)
    if final is None:
        return KernelReport(**counts, decision="not compared")
    champion = _speedup(final.paired)
    used_s = champion.tuned_s if final.won else champion.default_s
    flop_per_s = final.flops / used_s if final.flops else None
    peak = peaks.get(final.dtype or "")
    return KernelReport(
        **counts,
        decision=final.outcome if final.won else "kept xla",
        withdrawn=final.withdrawn,
        won=final.won,
        algorithm=final.schedule.algorithm,
        champion=champion,
        used_s=used_s,
        speedup=champion.speedup if final.won else 1.0,
        flop_per_s=flop_per_s,
        share_of_peak=flop_per_s / peak if flop_per_s and peak else None,
    )


def _readable(database: Database, row: Row | None) -> Final | None:
    try:
        return None if row is None else rows.final_of(row)
    except ValueError:
        database.unreadable += 1
        return None


def _speedup(paired: Paired) -> Speedup:
    return Speedup(
        default_s=paired.default_time_s,
        default_slow_s=slow_time_s(paired.default_s),
        tuned_s=paired.tuned_time_s,
        speedup=paired.speedup,
        speedup_low=paired.low,
        speedup_high=paired.high,
        default_samples_s=paired.default_s,
        tuned_samples_s=paired.tuned_s,
    )


def _default_share(kernel: KernelReport) -> tuple[float, str]:
    default_s = kernel.champion.default_s if kernel.champion else 0.0
    return -default_s * max(kernel.calls, 1.0), kernel.key


def _wall_s(run: Row, summary: Summary | None) -> float | None:
    if summary:
        return summary.wall_s
    if run["finished"] is None:
        return None
    try:
        span = datetime.fromisoformat(run["finished"]) - datetime.fromisoformat(run["started"])
    except (TypeError, ValueError):  # `tune db check` says which row has no date there
        return None
    return span.total_seconds()

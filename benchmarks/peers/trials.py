"""What the trials behind the rows say: first candidates beside the default, and winners' errors.

All of it is read from the records: nothing is timed.  The first candidate is what a formula gives
before any search, without Winograd's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.operators import first_schedule
from benchmarks.peers.records import Record, record
from benchmarks.peers.table import Row, counts
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import CacheMode
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.tuning_logs import rows as columns
from hlotune.tuning_logs.database import UNDER, Database, conditions

WINOGRAD = "winograd"
LARGEST_ERROR = 3e-6
"""Over the largest element of the result: what is asked of ResNet's layers, and named above.  What
numerics `standard` may use goes by the oracle's bound instead."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The first candidate by its trial, and the default by that of the same run."""

    first_s: float | None
    """None where it failed."""
    default_s: float

    @property
    def speedup(self) -> float:
        """0 where it failed."""
        return self.default_s / self.first_s if self.first_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the trials of a row's kernel say."""

    algorithm: str
    """The algorithm of the winner, or `xla`."""
    error: float | None
    """The winner's largest error over the result's largest element; None where it is not known."""
    begun: Begun | None
    """None where no run had a trial of both."""


def past(found: Record, database: Path, target: CpuTarget, cache: CacheMode) -> Past:
    with Database(database, create=False) as opened:
        trials = opened.query(
            f"""select run, schedule, time_s, relative_error from trials
            where kernel = :kernel and {UNDER} order by recorded, number""",
            {"kernel": found.kernel.key, **conditions(target, toolchain(), cache)},
        )
    return Past(
        algorithm=found.schedule.algorithm,
        error=largest_error(trials, found.schedule),
        begun=begun(trials, first_schedule(found.kernel, target)),
    )


def largest_error(trials: Sequence[columns.Row], winner: Schedule) -> float | None:
    text = winner.to_json()
    found = [t["relative_error"] for t in trials if t["schedule"] == text]
    return max((e for e in found if e is not None), default=None)


def begun(trials: Sequence[columns.Row], first: Schedule) -> Begun | None:
    """The first run in which both were timed, else the first in which `first` failed."""
    default, text = DEFAULT.to_json(), first.to_json()
    defaults_s = {t["run"]: t["time_s"] for t in trials if t["schedule"] == default}
    tried = [
        Begun(t["time_s"], default_s)
        for t in trials
        if t["schedule"] == text and (default_s := defaults_s.get(t["run"]))
    ]
    return next((b for b in tried if b.first_s), tried[0] if tried else None)


def notes(
    rows: Sequence[Row], database: Path, target: CpuTarget, cache: CacheMode = "model"
) -> list[str]:
    """Lines for below the table; none without the database."""
    if not database.exists():
        return []
    judged = [r for r in rows if r.status != "not tuned"]
    found = [
        (r, past(record(r.case, r.weights, database, target, cache), database, target, cache))
        for r in judged
    ]
    return [*of_first_candidates([(r, p) for r, p in found if counts(r)]), *of_errors(found)]


def of_first_candidates(found: Sequence[tuple[Row, Past]]) -> Iterator[str]:
    tried = [(row, past.begun) for row, past in found if past.begun]
    ahead = sum(b.speedup >= 1 for _, b in tried)
    if tried:
        yield (
            "first candidate, without any search, at least as fast as XLA: "
            f"{ahead} of {len(tried)} f32 rows ({ahead / len(tried):.0%}), by trials of one run"
        )
    if behind := [f"{r.place} {b.speedup:.2f}" for r, b in tried if b.speedup < 1]:
        yield f"first candidate slower than XLA, its ratio or 0.00 if it failed: {listed(behind)}"
    if unknown := [row.place for row, past in found if not past.begun]:
        yield f"no run has a trial of both first candidate and default: {listed(unknown)}"


def of_errors(found: Sequence[tuple[Row, Past]]) -> Iterator[str]:
    """Notes about those winners whose algorithm does more than reorder sums."""
    winners = [(r, p.error) for r, p in found if r.won and p.algorithm.startswith(WINOGRAD)]
    known = [(row, error) for row, error in winners if error is not None]
    if known:
        row, most = max(known, key=lambda pair: pair[1])
        loose = [f"{r.place} {error:.2g}" for r, error in known if error > LARGEST_ERROR]
        yield (
            "largest error of a winner by Winograd's algorithms, against the oracle in f64 and "
            f"over the largest element: {most:.2g}, {row.place}, of {len(known)} rows; above "
            f"{LARGEST_ERROR:g}: {listed(loose) or 'none'}"
        )
    if unknown := [row.place for row, error in winners if error is None]:
        yield f"the error of a winner by Winograd's algorithms is not known: {listed(unknown)}"


def listed(places: Sequence[str]) -> str:
    return ", ".join(places)

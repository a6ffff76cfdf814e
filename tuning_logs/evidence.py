"""All that records hold of a run, for the page and figures of its report: trials, limits."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import prod
from typing import Any, cast

from hlotune.measure.timing.modes import fast_time_s
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.steps.schedule import XLA
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.limit import Limit, limit_of
from hlotune.schedules.targets.target import Properties, Target
from hlotune.tuning_logs import report as reports
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.report import KernelReport, Report
from hlotune.tuning_logs.rows import Row

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([A-Za-z]\w*)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One trial, the default's too."""

    number: int
    """The number of the trial in its run, from 0."""
    batch: int
    """The number of the batch of its kernel, from 0; the model learns between two of them."""
    predicted: float | None
    """The score that the cost model gave it when it was chosen: the higher, the faster.  None where
    no model was asked, as of the default, or in records of older versions."""
    after_s: float
    """The seconds from the start of the run until it was recorded, pauses included."""
    time_s: float | None
    """The median; of a default in two modes that of the fast one.  None where it failed."""
    failure: str | None
    message: str
    algorithm: str
    """`?` where the schedule cannot be read."""
    schedule: str

    @property
    def is_default(self) -> bool:
        return self.algorithm == XLA


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvidence:
    report: KernelReport
    text: str
    moved_bytes: int | None
    """Bytes of all arguments and results; None where the text does not say."""
    flops: int | None
    dtype: str | None
    limit: Limit | None
    """None where the arithmetic or the peak is not known."""
    schedule: str | None
    """JSON of the champion's; where none of ours was compared, of the fastest trial of ours."""
    code: str | None
    """Hash of the machine code that was verified."""
    points: tuple[Point, ...]

    @property
    def default_s(self) -> float | None:
        """The default's time in the comparison that decided, else in the search."""
        if self.report.champion:
            return self.report.champion.default_s
        return min((p.time_s for p in self.points if p.is_default and p.time_s), default=None)

    @property
    def best_s(self) -> float | None:
        """The best time of the search, of a candidate of ours: proven by nothing."""
        return min((p.time_s for p in self.points if not p.is_default and p.time_s), default=None)

    @property
    def calls(self) -> float:
        """How often the kernel runs in one run of the program; 1 for one that stands in none."""
        return self.report.calls or 1.0

    @property
    def limit_share(self) -> float | None:
        """How near the code that is used comes to the limit: 1 at the limit."""
        used_s = self.report.used_s
        return self.limit.share(used_s) if self.limit and used_s else None

    @property
    def score(self) -> float | None:
        """The speed-of-light score of the code that is used."""
        default_s, used_s = self.default_s, self.report.used_s
        if self.limit is None or not default_s or not used_s:
            return None
        return self.limit.score(default_s, used_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    report: Report
    target: Target | None
    """None where its identity cannot be read."""
    peaks: Properties | None
    options: Mapping[str, Any]
    kernels: tuple[KernelEvidence, ...]
    """The kernels in the order of the report."""


def evidence(database: Database, name: str) -> Evidence:
    """The evidence of a run, by its id or a prefix, or of a program's newest.  Raises NoRecord."""
    found = reports.report(database, name)
    run = database.query(
        """select runs.*, identity, properties from runs
        join targets on fingerprint = target where runs.id = :id""",
        {"id": found.run},
    )[0]
    target, peaks = _target(run["identity"]), rows.properties_of(run["properties"])
    texts = database.query(
        """select key, text from kernels where key in
        (select kernel from trials where run = :id union select kernel from finals where run = :id)
        """,
        run,
    )
    by_key = {row["key"]: row["text"] for row in texts}
    finals = {f["kernel"]: f for f in database.query("select * from finals where run = :id", run)}
    points = _points(database, run)
    return Evidence(
        report=found,
        target=target,
        peaks=peaks,
        options=_options(run["options"]),
        kernels=tuple(
            _kernel(k, by_key[k.key], finals.get(k.key), points.get(k.key, ()), target, peaks)
            for k in found.kernels
        ),
    )


def _kernel(
    kernel: KernelReport, text: str, final: Row | None, points: Sequence[Point],
    target: Target | None, peaks: Properties | None,
) -> KernelEvidence:  # fmt: skip
    known = final if final and kernel.champion else {}
    moved, flops, dtype = moved_bytes(text), known.get("flops"), known.get("dtype")
    limit = None
    if flops and dtype and moved is not None and target and peaks:
        limit = limit_of(flops, moved, dtype, target, peaks)
    return KernelEvidence(
        report=kernel,
        text=text,
        moved_bytes=moved,
        flops=flops,
        dtype=dtype,
        limit=limit,
        schedule=_of_ours(known.get("schedule"), points),
        code=known.get("code"),
        points=tuple(points),
    )


def _of_ours(champion: str | None, points: Sequence[Point]) -> str | None:
    if champion and _algorithm(champion) != XLA:
        return champion
    ours = [p for p in points if p.time_s and not p.is_default]
    return min(ours, key=lambda p: p.time_s or 0.0).schedule if ours else None


def _points(database: Database, run: Row) -> dict[str, list[Point]]:
    """By kernel, in the order of recording."""
    found: dict[str, list[Point]] = {}
    trials = database.query(
        """select kernel, number, batch, predicted, recorded, samples_s, time_s, failure_kind,
            failure_message, schedule from trials where run = :id order by number, id""",
        run,
    )
    for row in trials:
        point = Point(
            number=row["number"],
            batch=row["batch"],
            predicted=row["predicted"],
            after_s=_between_s(run["started"], row["recorded"]),
            time_s=_time_s(row),
            failure=row["failure_kind"],
            message=row["failure_message"] or "",
            algorithm=_algorithm(row["schedule"]),
            schedule=row["schedule"],
        )
        found.setdefault(row["kernel"], []).append(point)
    return found


def _time_s(row: Row) -> float | None:
    if _algorithm(row["schedule"]) != XLA or row["time_s"] is None:
        return cast(float | None, row["time_s"])
    try:
        return fast_time_s(rows.samples_of(row["samples_s"]))
    except ValueError:
        return float(row["time_s"])


def moved_bytes(text: str) -> int | None:
    """Bytes of the arguments and results in the first line of a kernel's text.

    None where it names none, or one whose type has no whole bytes.
    """
    found = [
        (dims, kind) for dims, kind in _TENSOR.findall(text.partition("{\n")[0]) if kind in BYTES
    ]
    if not found or len(found) != text.partition("{\n")[0].count("tensor<"):
        return None
    return sum(prod(map(int, dims.split("x")[:-1])) * BYTES[kind] for dims, kind in found)


def _algorithm(schedule: str) -> str:
    try:
        return str(json.loads(schedule)["algorithm"])
    except (KeyError, TypeError, ValueError):
        return "?"


def _between_s(started: str, recorded: str) -> float:
    """0 where one of them is no date."""
    try:
        span = datetime.fromisoformat(recorded) - datetime.fromisoformat(started)
    except (TypeError, ValueError):
        return 0.0
    return max(0.0, span.total_seconds())


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except ValueError:
        return {}
    return options if isinstance(options, dict) else {}


def _target(identity: str) -> Target | None:
    try:
        return target_of(json.loads(identity))
    except (KeyError, TypeError, ValueError):
        return None

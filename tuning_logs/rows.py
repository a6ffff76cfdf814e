"""Values to rows of the database and back.

JSON columns are compact, keys sorted, so that equal values are equal text.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import (
    CacheMode,
    Candidate,
    Clock,
    Failure,
    FailureKind,
    Measurement,
    Outcome,
    Trial,
)
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets import kinds
from hlotune.schedules.targets import target as targets
from hlotune.tuning_logs import finals
from hlotune.tuning_logs.text import escaped

Row = dict[str, Any]
"""Column to value, as SQLite takes and gives them."""


def now() -> str:
    return datetime.now(UTC).isoformat()


def new_id() -> str:
    return uuid4().hex


def dumps(value: object) -> str:
    """JSON with full precision.

    Raises ValueError for NaN and infinities, which no other reader would take.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def kernel_row(kernel: Kernel, label: str | None = None) -> Row:
    return {"key": kernel.key, "family": kernel.family, "text": kernel.text, "label": label}


def target_row(target: targets.Target, properties: targets.Properties | None = None) -> Row:
    return {
        "fingerprint": target.fingerprint,
        "name": target.name,
        "identity": dumps(kinds.stored(target)),
        "properties": None if properties is None else dumps(asdict(properties)),
    }


def target_title(name: str, identity: str) -> str:
    """The title of a target, from a row of `targets`; the name alone where its identity cannot be
    read.
    """
    try:
        return kinds.target_of(json.loads(identity)).title
    except (KeyError, TypeError, ValueError):
        return name


def properties_of(text: str | None) -> targets.Properties | None:
    """None where nothing that can be read was recorded."""
    try:
        return None if text is None else targets.Properties(**json.loads(text))
    except (TypeError, ValueError):
        return None


def toolchain_row(toolchain: targets.Toolchain) -> Row:
    return {"key": toolchain.key, "versions": dumps(asdict(toolchain))}


def toolchain_of(versions: Mapping[str, Any]) -> targets.Toolchain:
    """Raises TypeError where a field is missing or unknown."""
    return targets.Toolchain(**versions)


def trial_row(
    trial: Trial, run: Row, batch: int, number: int, predicted: float | None = None
) -> Row:
    """A new row of `trials`, under the run's target and toolchain; a failure takes the run's
    cache mode, and its numerics: under these it was judged.

    Args:
        predicted: the score that the cost model gave when the candidate was chosen; None where no
            model was asked.
    """
    return {
        "id": new_id(),
        "run": run["id"],
        "kernel": trial.candidate.kernel.key,
        "target": run["target"],
        "toolchain": run["toolchain"],
        "threads": run["threads"],
        "schedule": trial.candidate.schedule.to_json(),
        "batch": batch,
        "number": number,
        "predicted": predicted,
        "recorded": now(),
        **_outcome_columns(trial.outcome, run),
    }


def _outcome_columns(outcome: Outcome, run: Row) -> Row:
    measured = ("samples_s", "time_s", "clock", "numerics", "error", "build_s", "relative_error")
    if isinstance(outcome, Failure):
        setting = {"cache": run["cache"], "numerics": run["numerics"]}
        message = escaped(outcome.message, keep="\n\t")
        failure = {"failure_kind": outcome.kind, "failure_message": message}
        return {**dict.fromkeys(measured), **setting, **failure}
    values = (
        dumps(outcome.samples_s),
        outcome.time_s,
        outcome.clock,
        outcome.numerics,
        outcome.error,
        outcome.build_s,
        outcome.relative_error,
    )
    return {
        "cache": outcome.cache,
        **dict(zip(measured, values, strict=True)),
        "failure_kind": None,
        "failure_message": None,
    }


def trial_of(row: Row, kernel: Kernel) -> Trial:
    """Raises ValueError (ScheduleError is one) where schedule or samples do not parse any more."""
    candidate = Candidate(kernel, Schedule.from_json(row["schedule"]))
    if row["failure_kind"] is not None:
        kind = cast(FailureKind, row["failure_kind"])
        return Trial(candidate, Failure(kind, row["failure_message"] or ""))
    return Trial(
        candidate,
        Measurement(
            samples_s=samples_of(row["samples_s"]),
            clock=cast(Clock, row["clock"]),
            cache=cast(CacheMode, row["cache"]),
            numerics=cast(Numerics, row["numerics"]),
            error=row["error"],
            relative_error=row["relative_error"],
            build_s=row["build_s"],
        ),
    )


def samples_of(text: str | None) -> tuple[float, ...]:
    """Raises ValueError unless the text is a JSON array of one or more finite positive numbers."""
    values = json.loads(text or "null")
    if not isinstance(values, list) or not values or not all(map(_is_time, values)):
        raise ValueError(f"expected samples in seconds, a JSON array of numbers, got {text!r:.80}")
    return tuple(map(float, values))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def final_row(run: str, kernel: Kernel, final: finals.Final) -> Row:
    return {
        "run": run,
        "kernel": kernel.key,
        "schedule": final.schedule.to_json(),
        "numerics": final.numerics,
        "default_s": dumps(final.paired.default_s),
        "tuned_s": dumps(final.paired.tuned_s),
        "speedup": final.paired.speedup,
        "low": final.paired.low,
        "high": final.paired.high,
        "decision": final.outcome,
        "margin": final.margin,
        "flops": final.flops,
        "dtype": final.dtype,
        "code": final.code,
        "withdrawn": final.withdrawn,
        "decided": now(),
    }


def final_of(row: Row) -> finals.Final:
    """Raises ValueError where schedule or samples do not parse any more."""
    return finals.Final(
        schedule=Schedule.from_json(row["schedule"]),
        numerics=cast(Numerics, row["numerics"]),
        paired=finals.Paired(
            default_s=samples_of(row["default_s"]),
            tuned_s=samples_of(row["tuned_s"]),
            speedup=row["speedup"],
            low=row["low"],
            high=row["high"],
        ),
        outcome=cast(finals.Outcome, row["decision"]),
        margin=row["margin"],
        flops=row["flops"],
        dtype=row["dtype"],
        code=row["code"],
        withdrawn=row["withdrawn"],
    )


def notes_of(text: str | None) -> tuple[str, ...]:
    """Raises ValueError where the JSON is no array of texts."""
    notes = json.loads(text or "[]")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ValueError(f"expected notes as a JSON array of texts, got {text!r:.80}")
    return tuple(notes)


def summary_of(text: str | None) -> finals.Summary | None:
    """Raises TypeError or ValueError where the JSON is no summary."""
    if text is None:
        return None
    data = json.loads(text)
    whole, skipped = data.pop("whole", None), data.pop("skipped", ())
    return finals.Summary(
        whole=None if whole is None else _paired_of(whole),
        skipped=tuple((str(label), str(reason)) for label, reason in skipped),
        **data,
    )


def _paired_of(data: Mapping[str, Any]) -> finals.Paired:
    samples = {name: tuple(data[name]) for name in ("default_s", "tuned_s")}
    return finals.Paired(**{**data, **samples})

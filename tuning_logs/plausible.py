"""Whether the values of a row can be true: dates, times, counts, speeds and text.

Rows come from other people's files. One that claims a date in the future, an infinite speed or a
control character in a name would stand above every honest one, or act on a terminal.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from hlotune.measure.timing.comparison import shared, speedup
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.finals import Paired
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.text import is_plain

CLOCKS_APART = timedelta(minutes=5)
"""By so much the clocks of two machines may differ."""
CONTENDERS = (1, 2, 3)
"""The numbers of champions that may have shared the confidence of a final's interval."""
LONGEST_S = 1e7
"""No time that is recorded is longer: about four months."""
LARGEST = 2.0**63
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
"""Dates as `rows.now` writes them: text in this form sorts by time."""


def require_plausible(table: str, row: Row) -> None:
    """Raises ValueError, or TypeError, where a value of the row cannot be true."""
    for column, value in row.items():
        if isinstance(value, str):
            _require_plain(column, value)
    for column, check in CHECKS.get(table, {}).items():
        if row.get(column) is not None:
            check(column, row[column])
    if table == "trials" and row["samples_s"] is not None:
        _require_median(row)


def recomputed(row: Row) -> Row:
    """A row of `finals` whose speedup, interval and margin are those of its samples.

    Raises ValueError where a schedule is said to have won that these do not prove faster.
    """
    default_s, tuned_s = (rows.samples_of(row[name]) for name in ("default_s", "tuned_s"))
    claimed = Paired(
        default_s=default_s, tuned_s=tuned_s,
        speedup=row["speedup"], low=row["low"], high=row["high"],
    )  # fmt: skip
    found = _of_samples(claimed)
    if row["decision"] == "tuned" and found.low <= 1:
        raise ValueError(
            "expected samples that prove the schedule faster, as it is said to have won, got a "
            f"speedup of {found.speedup:.3g} (interval {found.low:.3g} to {found.high:.3g})"
        )
    figures = {"speedup": found.speedup, "low": found.low, "high": found.high}
    return {**row, **figures, "margin": found.low - 1.0}


def _of_samples(claimed: Paired) -> Paired:
    """The interval that is nearest to the claim, of all confidences that it may have."""
    ratios = [speedup(claimed.default_s, claimed.tuned_s, shared(n)) for n in CONTENDERS]
    low = claimed.low if _is_number(claimed.low) else 0.0
    best = min(ratios, key=lambda ratio: (abs(ratio.low - low), ratio.low))
    return replace(claimed, speedup=best.median, low=best.low, high=best.high)


def _require_plain(column: str, text: str) -> None:
    """Also of text inside JSON, where a control character may stand as an escape."""
    if not all(is_plain(part, keep="\n\t") for part in (text, *_escaped_texts(text))):
        raise ValueError(f"expected {column} without control characters, got {text!r:.80}")


def _escaped_texts(text: str) -> Iterator[str]:
    if "\\u" not in text or not text.startswith(("{", "[")):
        return
    try:
        yield from _texts(json.loads(text))
    except ValueError:
        return


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        for part in parts:
            yield from _texts(part)


def _require_date(column: str, value: object) -> None:
    if not isinstance(value, str) or not DATE.fullmatch(value):
        raise ValueError(f"expected {column} as 2026-01-31T23:59:59+00:00, got {value!r:.80}")
    if datetime.fromisoformat(value) > datetime.now(UTC) + CLOCKS_APART:
        raise ValueError(f"expected {column} not later than now, got {value}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(most: float, least: float = 0.0) -> Callable[[str, object], None]:
    """A check of finite numbers."""

    def check(column: str, value: Any) -> None:
        if not _is_number(value) or not least <= value <= most:
            raise ValueError(
                f"expected {column} as a number from {least:g} to {most:g}, got {value!r:.80}"
            )

    return check


def _count(column: str, value: object) -> None:
    if not isinstance(value, int):
        raise ValueError(f"expected {column} as a whole number, got {value!r:.80}")
    _number(LARGEST)(column, value)


def _whole(column: str, value: object) -> None:
    if not isinstance(value, int) or abs(value) > LARGEST:
        raise ValueError(f"expected {column} as a whole number of 64 bits, got {value!r:.80}")


def _samples(column: str, text: str) -> None:
    for value in rows.samples_of(text):
        _number(LONGEST_S)(column, value)


def _numbers(column: str, text: str) -> None:
    """Every number in JSON, wherever it stands."""
    for value in _numbers_in(json.loads(text)):
        _number(LARGEST)(column, value)


def _numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers_in(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def _require_median(row: Row) -> None:
    samples = rows.samples_of(row["samples_s"])
    if row["time_s"] != median(samples):
        raise ValueError(f"expected the median of the samples as time_s, got {row['time_s']!r:.80}")


_SECONDS = _number(LONGEST_S)
CHECKS: dict[str, dict[str, Callable[[str, Any], None]]] = {
    "targets": {"properties": _numbers},
    "sites": {"weight": _number(LARGEST)},
    "runs": {
        "started": _require_date, "finished": _require_date, "threads": _count, "seed": _whole,
    },
    "trials": {
        "recorded": _require_date, "threads": _count, "batch": _count, "number": _count,
        "samples_s": _samples, "time_s": _SECONDS, "build_s": _SECONDS,
        "error": _number(LARGEST), "relative_error": _number(LARGEST),
        "predicted": _number(LARGEST, -LARGEST),
    },
    "finals": {
        "decided": _require_date, "flops": _count, "default_s": _samples, "tuned_s": _samples,
    },
}  # fmt: skip
"""By table and column; an absent value is in no check."""

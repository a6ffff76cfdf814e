"""Peaks of a target that were measured not long ago, in a file beside the default database.

To measure them takes longer than all else of a short command.  The file only saves that time: where
it is missing, older than a day, damaged or written by another toolchain, peaks are measured, and
where it cannot be written, nothing is said.
"""

import json
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.targets.target import Properties, Target, Toolchain
from hlotune.tuning_logs.default_path import cache_directory

KEPT_S = 24 * 3600.0
MOST_BYTES = 1 << 16
"""A file of peaks has some hundred bytes."""


def peaks_file(target: Target) -> Path | None:
    """Where peaks of a target are kept; None where there is no home folder."""
    with suppress(DatabaseError):
        return cache_directory() / "hlotune" / f"peaks.{target.fingerprint}.json"
    return None


def kept(path: Path | None, toolchain: Toolchain, now_s: float | None = None) -> Properties | None:
    """The peaks in a file; None where there are none of the last day that can be used.

    Args:
        now_s: seconds since 1970; the system's own where it is not given.
    """
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        age_s = (time.time() if now_s is None else now_s) - float(found["measured"])
        if found["toolchain"] != toolchain.key or not 0 <= age_s < KEPT_S:
            return None
        return _sound(found["properties"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def keep(
    path: Path | None, peaks: Properties, toolchain: Toolchain, now_s: float | None = None
) -> None:
    """Puts peaks into the file.  Where the system does not allow that, they are not kept."""
    if path is None:
        return
    measured = time.time() if now_s is None else now_s
    text = json.dumps(
        {"measured": measured, "toolchain": toolchain.key, "properties": asdict(peaks)}
    )
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as part:
            part.write_text(text + "\n", encoding="utf-8")


def kept_or(
    measure: Callable[[], tuple[Properties, bool]],
    path: Path | None,
    toolchain: Toolchain,
    now_s: float | None = None,
) -> Properties:
    """Peaks that are kept, else measured ones.

    Args:
        measure: gives peaks, and whether they are worth keeping.
    """
    if (found := kept(path, toolchain, now_s)) is not None:
        return found
    peaks, is_worth_it = measure()
    if is_worth_it:
        keep(path, peaks, toolchain, now_s)
    return peaks


def _sound(fields: Any) -> Properties:
    """Raises ValueError, TypeError or KeyError where they are no peaks."""
    peaks = Properties(**fields)
    if not isinstance(peaks.flops_per_s, dict):
        raise TypeError("expected peaks by type")
    numbers = [*peaks.flops_per_s.values(), peaks.read_bytes_per_s, peaks.clock_hz]
    for number in numbers:
        if not isinstance(number, int | float) or not 0 < number < math.inf:
            raise ValueError(f"expected peaks above zero, got {number!r:.40}")
    if "f32" not in peaks.flops_per_s:
        raise ValueError("expected a peak of f32, got none")
    return peaks

"""Trials in T4, the format of results that autotuners share (Open Autotuning Results Schema 1.0.0).

It was written down for Kernel Tuner and others, by which such a file can be compared or plotted.
Its times are in milliseconds.  A configuration is a kernel with a schedule: `steps` are texts.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hlotune.schedules.atomic_files import whole
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.text import escaped

SCHEMA_VERSION = "1.0.0"
INVALIDITY = {
    "schedule": "constraints",
    "build": "compile",
    "timeout": "timeout",
    "crash": "runtime",
    "device": "runtime",
    "wrong_result": "correctness",
}
"""Our kinds of failure in the words of T4."""


def export_t4(database: Database, path: Path) -> int:
    """Writes all trials, defaults included; returns how many.  The file appears whole or not at
    all.

    Raises OSError where it cannot be written.
    """
    found = list(results(database))
    with whole(path) as part:
        text = json.dumps({"schema_version": SCHEMA_VERSION, "results": found}, allow_nan=False)
        part.write_text(text + "\n", encoding="utf-8")
    return len(found)


def results(database: Database) -> Iterator[dict[str, Any]]:
    """The results in the order of recording; rows that do not parse are left out and counted as
    unreadable.
    """
    rows = database.query(
        """select trials.*, coalesce(label, '') as label from trials
        join kernels on key = kernel order by recorded, number, id"""
    )
    for row in rows:
        try:
            yield _result(row)
        except (KeyError, TypeError, ValueError):
            database.unreadable += 1


def _result(row: Row) -> dict[str, Any]:
    schedule = json.loads(row["schedule"])
    samples = [1e3 * float(x) for x in json.loads(row["samples_s"] or "[]")]
    failed = row["failure_kind"]
    result: dict[str, Any] = {
        "timestamp": row["recorded"],
        "configuration": {
            "kernel": row["kernel"],
            "label": escaped(row["label"]),
            "algorithm": schedule["algorithm"],
            "steps": [json.dumps(step) for step in schedule["steps"]],
        },
        "objectives": ["time"],
        "times": {"compilation_time": 1e3 * (row["build_s"] or 0.0), "runtimes": samples},
        "invalidity": INVALIDITY.get(failed, "runtime") if failed else "correct",
        "correctness": 0 if failed else 1,
        "measurements": [],
    }
    if row["time_s"] is not None:
        result["measurements"] = [{"name": "time", "value": 1e3 * row["time_s"], "unit": "ms"}]
    return result

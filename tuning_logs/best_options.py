"""The best options of XLA that are recorded for a program, beside which reports show theirs."""

import json
from dataclasses import dataclass
from math import isfinite

from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.rows import Row

SPACE = "xla_options"
"""What the options of a run say in which this was searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOptions:
    """The comparison of a program with some options of XLA with one without that proves most."""

    options: dict[str, bool | int | str]
    default_s: float
    best_s: float
    speedup: float
    low: float
    high: float | None
    """None where the samples prove nothing."""


def is_of_options(run: Row) -> bool:
    return bool(json.loads(run["options"]).get("space") == SPACE)


def best_options(database: Database, run: Row) -> BestOptions | None:
    """What was found for the program of a run, on its target and with its toolchain."""
    found = database.query(
        """select finals.*, runs.options as run_options from finals join runs on runs.id = run
        where program = :program and target = :target and toolchain = :toolchain
        and threads = :threads order by decided desc""",
        {name: run[name] for name in ("program", "target", "toolchain", "threads")},
    )
    rows_of_options = (r for r in found if is_of_options({"options": r["run_options"]}))
    compared = [x for r in rows_of_options if (x := _of(r)) is not None]
    return max(compared, key=lambda x: x.low, default=None)  # of equal ones the newest


def _of(row: Row) -> BestOptions | None:
    try:
        final = rows.final_of(row)
        options = json.loads(final.schedule.algorithm.removeprefix(SPACE))
    except ValueError:
        return None
    paired = final.paired
    return BestOptions(
        options=options, default_s=paired.default_time_s, best_s=paired.tuned_time_s,
        speedup=paired.speedup, low=paired.low, high=paired.high if isfinite(paired.high) else None,
    )  # fmt: skip

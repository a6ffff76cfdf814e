"""What the database has of a run itself, for when it is taken up again."""

import json

from hlotune.measure.timing.modes import fast_time_s
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.search.budget import account
from hlotune.tuning_logs.database import Database


def own_trials(database: Database, run: str, kernel_key: str) -> int:
    """Trials of a kernel that the run has recorded, without those on which the device failed."""
    found = database.query(
        """select count(*) as n from trials where run = :run and kernel = :kernel
        and schedule is not :default and failure_kind is not 'device'""",
        {"run": run, "kernel": kernel_key, "default": DEFAULT.to_json()},
    )
    return int(found[0]["n"])


def has_begun(database: Database, run: str, kernel_key: str) -> bool:
    """Whether the run itself, and not one like it before, had a batch of the kernel."""
    return bool(
        database.query(
            "select 1 from states where run = :run and kernel = :kernel",
            {"run": run, "kernel": kernel_key},
        )
    )


def is_finished(database: Database, run: str) -> bool:
    return bool(
        database.query("select 1 from runs where id = :run and finished is not null", {"run": run})
    )


def default_s(database: Database, run: str, kernel_key: str) -> float | None:
    """The default's time by which the run shared its budget; None where it had not timed it."""
    found = database.query(
        """select samples_s from trials where run = :run and kernel = :kernel
        and schedule = :default and time_s is not null order by number limit 1""",
        {"run": run, "kernel": kernel_key, "default": DEFAULT.to_json()},
    )
    return fast_time_s(json.loads(found[0]["samples_s"])) if found else None


def passed_s(database: Database, run: str) -> float:
    """Seconds on the run's clock at the end of its last recorded batch; 0 before the first."""
    found = database.query("select state from states where run = :run", {"run": run})
    ends = [e.ended_s for row in found for e in account.opened(row["state"])[1]]
    return max(ends, default=0.0)

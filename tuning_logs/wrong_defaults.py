"""Kernels of which XLA's own result does not agree with the reference.

A run holds it against the oracle once, on the inputs that candidates are first looked at with, and
records its error with the default's times.
"""

from typing import Unpack

from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import UNDER, Conditions, Database

MOST = 1.0
"""A default whose error is larger, in units of the tolerance of `standard` that bounds candidates,
does not agree with the oracle.
"""


def is_wrong(error: float | None) -> bool:
    return error is not None and error > MOST


def default_error(database: Database, kernel_key: str, run: str) -> float:
    """The error of the default's result of a kernel in a run; 0 where it was not checked."""
    found = database.query(
        """select error from trials where kernel = :kernel and run = :run
        and schedule = :default and time_s is not null order by number desc limit 1""",
        {"kernel": kernel_key, "run": run, "default": DEFAULT.to_json()},
    )
    return float(found[0]["error"] or 0.0) if found else 0.0


def default_relative_error(database: Database, kernel_key: str, run: str) -> float | None:
    """The largest deviation of the default's result of a kernel in a run over the largest value of
    its result; None where it was not checked.
    """
    found = database.query(
        """select relative_error from trials where kernel = :kernel and run = :run
        and schedule = :default and time_s is not null order by number desc limit 1""",
        {"kernel": kernel_key, "run": run, "default": DEFAULT.to_json()},
    )
    return found[0]["relative_error"] if found else None


def latest_default_error(database: Database, kernel_key: str, **under: Unpack[Conditions]) -> float:
    """The `default_error` of the latest run under these conditions."""
    found = database.query(
        f"""select error from trials where kernel = :kernel and {UNDER}
        and schedule = :default and time_s is not null
        order by recorded desc, number desc limit 1""",
        {"kernel": kernel_key, "default": DEFAULT.to_json(), **under},
    )
    return float(found[0]["error"] or 0.0) if found else 0.0


def wrong_text(error: float) -> str:
    """What is said of a default with such an error."""
    return (
        "XLA's own result does not agree with the reference: it is off by "
        f"{error:.3g} times its bound"
    )

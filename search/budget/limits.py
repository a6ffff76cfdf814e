"""What limits a run: seconds, or trials of each kernel."""

import re
from dataclasses import dataclass

DEFAULT_BUDGET_S = 300.0
"""The budget of a run that is given neither seconds nor trials."""


@dataclass(frozen=True, slots=True)
class Limits:
    """At most one of the two is None."""

    seconds: float | None = None
    """Seconds for all that a run does, or for its batches alone where a function says so.

    The seconds for which the run waits for another tuner or is suspended do not count.
    """
    trials: int | None = None
    """Trials of each kernel."""


def less(limits: Limits, seconds: float) -> Limits:
    """The limits that are left for batches where so many seconds have passed, or are put by."""
    if limits.seconds is None:
        return limits
    return Limits(seconds=max(0.0, limits.seconds - seconds))


def seconds(budget: str | float) -> float:
    """`"90"`, `"90s"`, `"2m"`, `"1h30m"` or a number, in seconds; ValueError for all else."""
    text = str(budget).strip()
    parts = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text)
    try:
        if not text or parts is None:
            raise ValueError
        total = sum(
            float(p) * unit for p, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if p
        )
        if not 0 < total < float("inf"):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"expected a budget like 90s, 2m or 1h30m, longer than nothing, got {text!r}"
        ) from None
    return total

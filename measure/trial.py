"""What is measured and what comes of it: candidates, trials, measurements, failures."""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from hlotune.hlo.kernel import Kernel
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.steps.schedule import Schedule

FailureKind = Literal["schedule", "build", "timeout", "crash", "wrong_result", "device"]
Clock = Literal["kernel", "call"]
CacheMode = Literal["model", "warm"]

CACHE_MODES: tuple[CacheMode, ...] = get_args(CacheMode)


def require_one_of(names: Collection[str], name: str, what: str) -> None:
    """Raises ValueError where a caller's choice is none."""
    if name not in names:
        raise ValueError(f"expected a {what} among {', '.join(sorted(names))}, got {name!r}")


def require_settings(numerics: str, cache: str) -> None:
    """Raises ValueError where there is no such setting, or no such mode."""
    require_one_of(NUMERICS, numerics, "setting of numerics")
    require_one_of(CACHE_MODES, cache, "cache mode")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate has no time."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All samples of one candidate, in seconds, by the named clock in the named cache mode."""

    samples_s: tuple[float, ...]
    clock: Clock = "kernel"
    cache: CacheMode = "model"
    numerics: Numerics = "standard"
    """The least setting under which the results are right."""
    error: float = 0.0
    """Largest deviation from the oracle in units of the tolerance of `standard`."""
    relative_error: float | None = None
    """Largest deviation over the largest value of its result; None where nobody looked."""
    build_s: float = 0.0
    """Seconds that building it took; none for the default."""

    @property
    def time_s(self) -> float:
        return median(self.samples_s)


Outcome = Measurement | Failure


@dataclass(frozen=True, slots=True)
class Candidate:
    kernel: Kernel
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Trial:
    candidate: Candidate
    outcome: Outcome

    @property
    def time_s(self) -> float | None:
        """Median time in seconds, or None where the candidate failed."""
        return self.outcome.time_s if isinstance(self.outcome, Measurement) else None

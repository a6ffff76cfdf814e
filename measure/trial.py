"""What is measured and what comes of it: candidates, trials, measurements, failures."""

from dataclasses import dataclass
from statistics import median
from typing import Literal

from hlotune.hlo.kernel import Kernel
from hlotune.schedules.schedule import Schedule

FailureKind = Literal["schedule", "build", "timeout", "crash", "wrong_result", "device"]
Clock = Literal["kernel", "call"]
CacheMode = Literal["model", "warm"]
Numerics = Literal["strict", "standard", "fast"]


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

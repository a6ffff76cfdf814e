"""The events that a tuning run reports while it goes: one frozen value each."""

from collections.abc import Callable
from dataclasses import dataclass

from hlotune.tuning_logs.keeping import Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Kernels are known, and how many of their trials the database had already."""

    kernels: int
    known_trials: int
    """Trials that other runs made."""
    own_trials: int = 0
    """Trials that this run made before it was taken up again."""
    model: str = ""
    """The cost model, and what it knows from elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStarted:
    key: str
    """The key of the kernel: several kernels may have one label."""
    label: str
    index: int
    """From 1 to `count`."""
    count: int
    default_s: float
    known_trials: int
    default_slow_s: float | None = None
    """Where the default ran in two modes, the slow one, which does not count."""
    default_error: float = 0.0
    """The error of the default's own result, in units of the tolerance: above 1 it is wrong."""
    calls: float = 1.0
    """How often the kernel runs in one run of the program."""
    limit_s: float | None = None
    """The least time of a call that the measured peaks allow; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSkipped:
    """A kernel that stays with the default compiler, without a search or a comparison, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStopped:
    """The search of a kernel ended early; its best schedule until then meets the default."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAtLimit:
    """The search of a kernel ended as hardly anything is left to gain."""

    key: str
    label: str
    share: float
    """The share of the least time that the best candidate reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of one kernel was measured, recorded and learned from."""

    key: str
    label: str
    kernels_begun: int
    kernels: int
    trials: int
    """Trials of the whole run, of all kernels."""
    failures: int
    best_s: float | None
    """The best time of the kernel; None as long as everything failed."""
    default_s: float
    gflops: float | None
    """The rate of the best; arithmetic on padding does not count."""
    peak_share: float | None
    """The share of the target's measured peak for the kernel's type."""
    rank_correlation: float
    """The rank correlation of the model's prediction with what this batch measured, -1 .. 1."""
    elapsed_s: float
    remaining_s: float
    """Seconds of the budget that are left; where trials are counted, what those to come will take
    if they go on like the newest."""
    is_estimate: bool = False
    """Whether `remaining_s` is such an estimate."""
    calls: float = 1.0
    """How often the kernel runs in one run of the program."""
    limit_s: float | None = None
    """The least time of a call that the measured peaks allow; None where it is not known."""
    kernel_trials: int = 0
    """Trials of this kernel, in this run."""
    failed: tuple[str, ...] = ()
    """The kind of each failure of this batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalising:
    """Champions are now compared with their defaults."""

    kernels: int
    interrupted: bool
    settled: bool = False
    """Whether the search ended before its budget, as no kernel promised enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormTried:
    """The program was compared with and without some kernels of ours: such as are not proven faster
    alone, or only just.
    """

    labels: tuple[str, ...]
    is_faster: bool
    """Whether it is proven faster so: then it stays so."""
    without: bool = False
    """Whether these kernels had won alone, and were left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    trials: int
    won: int
    kernels: int
    speedup: float | None
    """The speedup of the whole program, with the ends of its 95 % interval; None where it was not
    timed.
    """
    speedup_low: float | None
    speedup_high: float | None
    wall_s: float
    waited_s: float = 0.0
    """The part of it that passed while another tuner was at work."""
    away_s: float = 0.0
    """The part of it for which the process was suspended."""
    overrun: str = ""
    """By how much the run missed its budget, and where; nothing where it kept it."""
    unproven: str = ""
    """What the whole program took where there was time for too few calls to prove a difference."""


Event = (
    Started | KernelStarted | KernelSkipped | KernelStopped | KernelAtLimit | Batch | Finalising
    | FormTried | Finished | Moved
)  # fmt: skip
Progress = Callable[[Event], None]


def silent(event: Event) -> None:
    """Takes events of callers who do not want to know."""

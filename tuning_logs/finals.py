"""What a run ends with: each kernel's champion against the default, and the whole program's
figures.
"""

from dataclasses import dataclass
from statistics import median
from typing import Literal, Self

from hlotune.measure.timing.comparison import Ratio, counted
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import XLA, Schedule

Outcome = Literal["tuned", "tuned together", "kept default"]
"""`tuned together`: the champion is not proven faster than the default alone, but the program of
the run is proven faster with it, and no other program uses it.  It stays `tuned together` where it
is taken back, which says nothing of other programs then.
"""
WRONG = "wrong in the program"
"""Why a champion is taken back whose kernel alone was right."""
SLOWER = "slower in the program"
"""Why champions are taken back that won alone, but with which the whole program is slower.  All
other reasons are that results are wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Default and tuned, timed in turns; all samples in seconds.

    `low` and `high` bound the speedup with 95 % confidence, from the ratios of the pairs.  Of a
    default in two modes the slow one counts in neither.
    """

    default_s: tuple[float, ...]
    tuned_s: tuple[float, ...]
    speedup: float
    low: float
    high: float

    @classmethod
    def of(cls, default_s: tuple[float, ...], tuned_s: tuple[float, ...], found: Ratio) -> Self:
        return cls(
            default_s=default_s,
            tuned_s=tuned_s,
            speedup=found.median,
            low=found.low,
            high=found.high,
        )

    @property
    def default_time_s(self) -> float:
        """The default's median, its samples as they count beside the tuned ones."""
        return median(counted(self.default_s, self.tuned_s))

    @property
    def tuned_time_s(self) -> float:
        return median(self.tuned_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The last word of a run about a kernel, which is what `apply` follows."""

    schedule: Schedule
    """The champion, also where it lost; `Decision` then says to leave the kernel to XLA."""
    numerics: Numerics
    """The least setting that the champion needs."""
    paired: Paired
    outcome: Outcome
    margin: float
    """Lower bound of the speedup minus the bound that was asked for; negative where that was not
    reached.
    """
    flops: int | None = None
    """Arithmetic of the kernel without padding and inserted zeros, for GFLOP/s."""
    dtype: str | None = None
    """The element type in which most of it is done, for the share of the peak."""
    code: str | None = None
    """Hash of the champion's machine code that was verified (`Built.key`); None in old records."""
    withdrawn: str | None = None
    """Why the champion was taken back after it had won; the default is kept then."""

    @property
    def won(self) -> bool:
        """A schedule of ours was proved faster, alone or in the program of its run, and still
        stands; to keep the default is no win."""
        ours = self.schedule.algorithm != XLA
        return self.outcome != "kept default" and ours and self.withdrawn is None

    @property
    def is_wrong(self) -> bool:
        """Whether it was taken back because results were wrong with it."""
        return self.withdrawn is not None and self.withdrawn != SLOWER


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A whole program with its winners: the errors are those of `Summary`."""

    paired: Paired | None
    """None where the samples prove nothing."""
    error: float | None
    default_error: float | None
    slower: tuple[str, ...] = ()
    """Keys of kernels without which the program is proven faster; in no summary."""
    falls_short: bool = False
    """Whether it gains less than half of what its kernels promise; in no summary."""
    unproven: str = ""
    """What it took where there was time for too few calls to prove a difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The last words of a whole run; parts that were not measured are None."""

    wall_s: float
    waited_s: float = 0.0
    """The part of it that passed while another tuner was at work on the machine."""
    away_s: float = 0.0
    """The part of it for which the process was suspended."""
    others_share: float | None = None
    """The share of the processors that other processes took meanwhile; None where the system does
    not tell."""
    overrun: str = ""
    """By how much the run missed its budget, and where; nothing where it kept it."""
    fastest_probe_s: float | None = None
    """The median of a fixed probe beside the trials of a batch, in the batch with the least."""
    slowest_probe_s: float | None = None
    """The same median in the batch with the most."""
    whole: Paired | None = None
    """The whole program, default against tuned."""
    error: float | None = None
    """Relative root mean square error of the tuned program, of its worst result against the oracle;
    None where it was not checked.
    """
    default_error: float | None = None
    """The default's, of the same result.  None where the oracle does not know all of the program,
    so that the tuned result was held against the default's.
    """
    wrong_default: str = ""
    """How results of the default program do not agree with the oracle, where they do not."""
    unproven: str = ""
    """What the whole program took where there was time for too few calls to prove a difference."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Label and reason of each kernel that was left alone, or whose search ended early."""

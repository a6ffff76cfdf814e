"""The result of a tuning run."""

from dataclasses import dataclass, replace
from pathlib import Path

from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.budget.contest import Contest
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """One kernel: its champion against the default compiler, timed in turns."""

    label: str
    key: str
    weight: float
    """How often the kernel runs in one run of the program."""
    trials: int
    """The trials that were measured in this run."""
    failures: int
    default_s: float
    best_s: float | None
    """Time of the champion; None where no schedule of ours worked."""
    ratio: float = 1.0
    """Median of default / champion over paired samples; 1 where there was nothing to compare."""
    ratio_low: float = 1.0
    ratio_high: float = 1.0
    """Bounds of the ratio with 95 % confidence."""
    won: bool = False
    """The champion was proven faster and right, or right where the default is wrong, and takes the
    place of the default."""
    schedule: Schedule | None = None
    """The schedule of the champion, also where it lost."""
    default_error: float = 0.0
    """The error of the default's own result, in units of the tolerance: above 1 it is wrong."""

    @property
    def tuned_s(self) -> float:
        """What the kernel takes in the tuned program: the default's time unless ours won."""
        return self.default_s / self.ratio if self.won else self.default_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    program_name: str
    database: Path
    """Where the records are: beside the file that was named if that was removed meanwhile."""
    run: str
    """Id of the run in the database."""
    kernels: tuple[KernelResult, ...]
    trials: int
    known_trials: int
    """The trials that earlier runs recorded under the same conditions, and that are not measured
    again.
    """
    wall_s: float
    waited_s: float = 0.0
    """The part of it that passed while another tuner was at work; in no budget."""
    away_s: float = 0.0
    """The part of it for which the process was suspended; in no budget."""
    others_share: float | None = None
    """The share of the processors that other processes took meanwhile, since the run was taken up
    again; None where the system does not tell."""
    overrun: str = ""
    """By how much the run missed its budget, and where; nothing where it kept it."""
    probe_s: tuple[float, ...] = ()
    """Seconds of a fixed probe beside the trials of each batch: how the machine's pace moved."""
    speedup: float | None = None
    """Whole program, default / tuned; None where it was not measured."""
    speedup_low: float | None = None
    speedup_high: float | None = None
    unproven: str = ""
    """What the whole program took where there was time for too few calls to prove a difference."""
    interrupted: bool = False
    skipped: tuple[tuple[str, str], ...] = ()
    """Label and reason of kernels that stayed with the default compiler without a search or a
    comparison, and of those whose search ended early."""
    wrong: tuple[str, ...] = ()
    """Keys of kernels whose champions were right alone, and wrong in the program.  They were taken
    back, and are never champions again.
    """
    wrong_sites: tuple[str, ...] = ()
    """The sites at which these were wrong, with labels: `dot1 (dot 64x784x512)`."""
    wrong_default: str = ""
    """What is wrong with the results of the default program."""
    wrong_anyway: str = ""
    """What is wrong in the program though no kernel of ours is to blame; it was not timed then."""
    needed_s: int | None = None
    """A budget in which each kernel has a batch, where not even one fitted into the one given."""

    @property
    def won(self) -> tuple[KernelResult, ...]:
        return tuple(k for k in self.kernels if k.won)

    def report(self) -> str:
        """The report of the run, from the database, and whether its budget was too short to search.

        Raises DatabaseError if the database is gone.
        """
        with Database(self.database, read_only=True) as database:
            text = render(report(database, self.run))
        if self.needed_s is None:
            return text
        return f"{text}\nNo batch of trials fitted into the budget; give one of {self.needed_s} s."


def kernel_result(
    contest: Contest, found: Final | None, trials: int, failures: int
) -> KernelResult:
    result = KernelResult(
        label=contest.task.label,
        key=contest.task.kernel.key,
        weight=contest.task.weight,
        trials=trials,
        failures=failures,
        default_s=contest.default_s,
        best_s=None,
        default_error=contest.default_error,
    )
    return result if found is None else with_final(result, found)


def with_final(result: KernelResult, found: Final) -> KernelResult:
    """What the comparison of a kernel's champion with its default says of it."""
    return replace(
        result,
        default_s=found.paired.default_time_s,
        best_s=found.paired.tuned_time_s,
        ratio=found.paired.speedup,
        ratio_low=found.paired.low,
        ratio_high=found.paired.high,
        won=found.won,
        schedule=found.schedule,
    )

"""What `tune show` shows of a kernel.  Imported when it is needed: it brings all the rooms."""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.codegen.texts import assembly_of, source_of
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Failure, Trial
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.errors import NoRecord, ScheduleError, UnsupportedKernel
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.search.tasks import SPACES
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.listing import find_kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    time_s: float | None
    schedule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    key: str
    family: str
    text: str
    space_size: float | None
    """Schedules to choose from on this machine; None where there is no rule for the kernel."""
    decision: str
    applied_schedule: str
    fastest: Timed | None
    """The fastest under the conditions of this machine; the default compiler's code counts."""
    fastest_of_ours: Timed | None
    steps: list[tuple[str, str]] | None = None
    """(step, the nest after it), the first before any step."""
    llvm: str | None = None
    assembly: str | None = None
    features: dict[str, float] | None = None


def inspect(
    database: Database, name: str, *, steps: bool, llvm: bool, asm: bool, features: bool
) -> Shown:
    """Details are those of the fastest schedule of ours.

    Raises NoRecord where there is no such kernel, or where details are wanted and no schedule of
    ours ran on this machine; ScheduleError where the schedule has become impossible.
    """
    kernel = database.kernel(find_kernel(database, name))
    under = conditions(host_target(), toolchain())
    trials = usable(database.trials(kernel.key, **under))
    decided = decision(database, kernel.key, **under)
    ours = [t for t in trials if t.candidate.schedule.algorithm != XLA]
    best = fastest(ours)
    if best is None and (steps or llvm or asm or features):
        raise NoRecord(
            f"kernel {kernel.key[:8]}: expected a schedule of ours that ran on this machine, found "
            "none; `tune run` finds them"
        )
    compute, space = supported(kernel)
    shown = compute if best else None
    schedule = best.candidate.schedule if best else Schedule(XLA, ())
    return Shown(
        key=kernel.key,
        family=kernel.family,
        text=kernel.text,
        space_size=space.size if space else None,
        decision=decided.reason,
        applied_schedule=decided.schedule.to_json(),
        fastest=timed(fastest(trials)),
        fastest_of_ours=timed(best),
        steps=nest_by_step(shown, schedule) if shown and steps else None,
        llvm=llvm_text(shown, schedule) if shown and llvm else None,
        assembly=assembly_of(llvm_text(shown, schedule), host_target()) if shown and asm else None,
        features=features_by_name(shown, schedule) if shown and features else None,
    )


def supported(kernel: Kernel) -> tuple[Compute, Space] | tuple[None, None]:
    """Its compute and its space, where there is a space for it on this machine."""
    try:
        compute = compute_of(graph_of(kernel))
        return compute, SPACES["cpu"](compute, host_target())
    except UnsupportedKernel:
        return None, None


def usable(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with a time, except for schedules that failed later and are not used any more."""
    failed = {
        t.candidate.schedule
        for t in trials
        if isinstance(t.outcome, Failure) and t.outcome.kind != "device"
    }
    return [t for t in trials if t.time_s and t.candidate.schedule not in failed]


def fastest(trials: Sequence[Trial]) -> Trial | None:
    return min(trials, key=lambda t: t.time_s or float("inf"), default=None)


def timed(trial: Trial | None) -> Timed | None:
    if trial is None:
        return None
    return Timed(time_s=trial.time_s, schedule=trial.candidate.schedule.to_json())


def nest_by_step(compute: Compute, schedule: Schedule) -> list[tuple[str, str]]:
    nest = unscheduled(compute, schedule.algorithm, host_target())
    nests = [("before any step", str(nest))]
    for step in schedule.steps:
        nest = step.apply(nest)
        nests.append((str(step), str(nest)))
    return nests


def llvm_text(compute: Compute, schedule: Schedule) -> str:
    return source_of(replay(compute, schedule, host_target()))


def features_by_name(compute: Compute, schedule: Schedule) -> dict[str, float]:
    """What a cost model sees.  Raises ScheduleError where today's space has no such schedule."""
    space = SPACES["cpu"](compute, host_target(), "fast")
    config = space.locate(schedule)
    if config is None or space.schedule(config) != schedule:
        raise ScheduleError(
            "expected a schedule of today's space, got one that is not in it; "
            "leave --features out, or tune the kernel again"
        )
    values = space.features(config[None, :])[0]
    return {name: float(value) for name, value in zip(NAMES, values, strict=True)}

"""What our schedules of a kernel are, and the least time that a device's peaks allow for it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlotune.hlo.kernel import Kernel
    from hlotune.schedules.ir.compute import Compute
    from hlotune.schedules.targets.target import Properties, Target


def limit_s(
    kernel: "Kernel",
    peaks: "Properties",
    ours: "Ours | None" = None,
    target: "Target | None" = None,
) -> float | None:
    """The fewest seconds that a target's peaks allow for one call; None where unknown.

    `ours` is what `schedules_of` says of the kernel; the target is this machine by default.
    """
    from hlotune.hlo.canonical import graph_of
    from hlotune.measure.machine.targets import host_target
    from hlotune.schedules.targets.limit import limit_of

    graph, ours = graph_of(kernel), ours or schedules_of(kernel, target)
    moved = sum(t.bytes for t in (*graph.argument_types, *graph.result_types))
    found = limit_of(ours.flops or 0, moved, ours.dtype, target or host_target(), peaks)
    return found.time_s if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Our schedules of a kernel: the size of their space, or the reason why there are none."""

    sketches: int = 0
    configs: float = 0.0
    flops: int | None = None
    dtype: str = "f32"
    reason: str | None = None


def schedules_of(kernel: "Kernel", target: "Target | None" = None) -> Ours:
    """The schedules that we have of a kernel on a target, by default this machine's CPU."""
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.to_compute.assemble import compute_of
    from hlotune.measure.machine.targets import host_target
    from hlotune.schedules.errors import TargetError, reason_alone
    from hlotune.schedules.ir.flops import arithmetic_type
    from hlotune.search.tasks import multiplied_type, searched

    try:
        compute = compute_of(graph_of(kernel))
    except Exception as error:  # one kernel's error does not end the list of the others
        return Ours(reason=reason_alone(error))
    work = Ours(flops=_known_flops(compute), dtype=arithmetic_type(compute))
    try:
        space = searched(compute, target or host_target())
    except TargetError as error:
        return replace(work, reason=str(error))
    except Exception as error:
        return replace(work, reason=reason_alone(error))
    work = replace(work, dtype=multiplied_type(compute, space))
    return replace(work, sketches=len(space.sketches), configs=space.size)


def _known_flops(compute: "Compute") -> int | None:
    """Operations of a call; None where parts lie beside one another and no point reads all of them,
    so that none is counted.
    """
    from hlotune.schedules.ir.flops import flops_of

    found = flops_of(compute)
    return found if found or not any(stage.flops for stage in compute.stages) else None


def peaks_of_today() -> "Properties":
    """This machine's peaks, measured once a day."""
    from hlotune.measure.machine.targets import host_target, toolchain
    from hlotune.tuning_logs.kept_peaks import kept_or, peaks_file

    return kept_or(measured_peaks, peaks_file(host_target()), toolchain())


@dataclass(frozen=True, slots=True)
class Limits:
    """A device and its peaks: the best rates that it can reach."""

    target: "Target"
    peaks: "Properties"


def limits_of(device: "Target | None") -> Limits:
    """The maker's figures for a device that has them, else this CPU's peaks, measured daily."""
    from hlotune.measure.machine.targets import host_target

    if device is not None and device.peaks is not None:
        return Limits(device, device.peaks)
    return Limits(host_target(), peaks_of_today())


def measured_peaks() -> "tuple[Properties, bool]":
    """The peaks, measured with no tuner at work on the machine, and whether no other process was at
    work either.
    """
    from hlotune.measure.machine.machine_lock import alone
    from hlotune.measure.machine.other_processes import Others
    from hlotune.measure.machine.targets import host_target
    from hlotune.measure.timing.peaks import host_properties
    from hlotune.tuning_logs.render import QUIET

    with alone():
        others = Others()
        return host_properties(host_target()), (others.share() or 0.0) <= QUIET

"""From a compute and a schedule to an object: replay, emit, compile."""

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import emit
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.flops import executed_flops
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target


def build(compute: Compute, schedule: Schedule, target: Target) -> Built:
    """Raises ScheduleError where the schedule does not apply, BuildError where it has no code."""
    if not isinstance(target, CpuTarget):
        raise BuildError(
            f"expected a CPU to build for, got {target.title}; there is no code for it"
        )
    nest = replay(compute, schedule, target)
    emitted = emit(nest)
    names = [t.name for t in compute.arguments]
    packed = tuple(
        Packed(names.index(tensor), size, entry) for tensor, entry, size in emitted.packed
    )
    return Built(
        object=compile_object(emitted.text, target),
        scratch_bytes=emitted.scratch_bytes,
        packed=packed,
        flops=executed_flops(nest),
        threads=target.threads,
        algorithm=schedule.algorithm,
        tiles=any(s.tiles for s in nest.stages),
    )

"""From a compute and a schedule to an object: replay, emit, compile."""

from math import prod

from hlotune.codegen.built import Built, Packed
from hlotune.codegen.compile import compile_object
from hlotune.codegen.emit import emit
from hlotune.schedules.compute import Compute, Stage
from hlotune.schedules.replay import replay
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.target import Target


def build(compute: Compute, schedule: Schedule, target: Target) -> Built:
    """Raises ScheduleError where the schedule does not apply, BuildError where it has no code."""
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
        flops=sum(real_flops(compute, s) for s in compute.stages),
        threads=target.threads,
    )


def real_flops(compute: Compute, stage: Stage) -> int:
    """Operations of a stage, those on padding and inserted zeros left out."""
    flops, extents = stage.flops, stage.extents
    for x in stage.loads:
        for d, index in enumerate(x.index):
            axes = [a for a, _ in index.terms]
            total = prod(extents[a] for a in axes)
            real = _real_points(
                index.terms,
                index.constant,
                extents,
                compute.tensor(x.tensor).shape[d],
                x.divisor(d),
            )
            flops = flops * real // max(total, 1)
    return flops


def _real_points(
    terms: tuple[tuple[str, int], ...],
    constant: int,
    extents: dict[str, int],
    extent: int,
    divisor: int,
) -> int:
    """Points of the axes at which an index lies inside its dimension."""
    counts = {constant: 1}
    for axis, c in terms:
        spread: dict[int, int] = {}
        for value, n in counts.items():
            for k in range(extents[axis]):
                spread[value + c * k] = spread.get(value + c * k, 0) + n
        counts = spread
    return sum(n for v, n in counts.items() if v % divisor == 0 and 0 <= v // divisor < extent)

"""Which tensors a stage's vectors go along, and which cache holds what is asked for far ahead."""

from collections import Counter

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget

NEIGHBOURS = 3
"""Places of one tensor from which on a stage reads neighbours."""


def streamed(compute: Compute, stage: Stage) -> tuple[str, ...]:
    """The arguments that vectors of a stage may go along, in order."""
    found = dict.fromkeys(
        x.tensor
        for x in stage.loads
        if not any(y.lookups for y in stage.loads if y.tensor == x.tensor)
        and compute.tensor(x.tensor).role in ("argument", "constant")
        and compute.tensor(x.tensor).bytes > LINE_BYTES
        and any(stride(x.index, compute.tensor(x.tensor).strides, a.name) == 1 for a in stage.axes)
    )
    return tuple(found)


def reads_neighbours(compute: Compute, stage: Stage, target: CpuTarget) -> bool:
    """Whether a stage reads neighbours of each point, in a tensor that no cache has room for:
    most of its loads find what an earlier point read, and the foremost waits for memory."""
    places = Counter(x.tensor for x in stage.loads)
    large = target.l3_bytes // 2
    return any(
        places[name] >= NEIGHBOURS and compute.tensor(name).bytes > large
        for name in streamed(compute, stage)
    )


def cache_by_rule(
    compute: Compute,
    stage: Stage,
    tensor: str,
    target: CpuTarget,
    *,
    bytes_ahead: int,
    lanes_along: str | None,
    passes: bool,
    alone: bool,
) -> int:
    """The cache into which vectors that a stage loads of a tensor ask for what lies further on,
    where the schedule does not say it.

    With wide vectors the second for rows that are turned, whose lines may meet in the same few
    places of the first, and where no cache holds the tensor, and results pass the caches meanwhile,
    neighbours are read, or the stage is a reduction by itself: the first has room for few requests
    that wait as long as memory takes, and loads and stores wait for room too.  Sums of rows that
    other stages read again lose by it.  What is asked for further ahead than the first cache is
    large goes to the second everywhere.

    Args:
        lanes_along: the axis along which the lanes of vectors lie.
        passes: whether the results of the nest around the stage pass the caches.
        alone: whether the stage stands at the root.
    """
    if bytes_ahead > target.l1_bytes:
        return 2
    is_far = compute.tensor(tensor).bytes > target.l3_bytes // 2
    by_itself = alone and bool(stage.reduce)
    waits = passes or by_itself or reads_neighbours(compute, stage, target)
    second = (is_far and waits) or is_turned(compute, stage, lanes_along)
    return 2 if target.has_wide_vectors and second else 1


def is_turned(compute: Compute, stage: Stage, lanes_along: str | None) -> bool:
    """Whether a map stores what lies in the lanes of a vector apart."""
    if lanes_along is None or stage.combine is not None:
        return False
    stores = ((x, compute.tensor(x.tensor)) for x in stage.stores)
    return any(abs(stride(x.index, t.strides, lanes_along)) > 1 for x, t in stores)

"""Which nests at the root of a kernel run at the same time, as tasks of one loop over threads."""

from collections.abc import Set

from hlotune.schedules.ir.nest import LoopNest, StageNest


def parallel_regions(nest: LoopNest) -> tuple[tuple[StageNest, ...], ...]:
    """The nests at the root in order, those together that do not wait for one another.

    An update of many arrays is one region, whose tasks are those of all arrays: threads meet once,
    and none of them waits for a small array.  Nests that store temporaries stay alone: their
    buffers may lie in memory that an earlier one has left.
    """
    found: list[list[StageNest]] = []
    around = {x.at[0] for x in nest.stages if x.at is not None}
    for s in nest.stages:
        if s.at is not None or s.scope == "load":
            continue
        if (
            found
            and _is_alone(nest, around, s)
            and all(_apart(nest, around, x, s) for x in found[-1])
        ):
            found[-1].append(s)
        else:
            found.append([s])
    return tuple(map(tuple, found))


def _is_alone(nest: LoopNest, around: Set[str], s: StageNest) -> bool:
    """Whether a nest is elementwise, of one stage, and stores results."""
    plain = s.stage.combine is None and s.stage.name not in around
    return plain and all(nest.compute.tensor(name).role == "result" for name in s.stage.stored)


def _apart(nest: LoopNest, around: Set[str], a: StageNest, b: StageNest) -> bool:
    """Whether neither of two nests reads or stores what the other one stores."""
    reads = b.stage.stored & a.stage.maps.keys() or a.stage.stored & b.stage.maps.keys()
    return _is_alone(nest, around, a) and not reads and not a.stage.stored & b.stage.stored

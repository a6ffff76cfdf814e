"""Which results of a finished nest may be written over which arguments.

A caller that gives an argument away, as `jax.jit` lets it with `donate_argnums`, may have a result
in the argument's memory.  That is right where each element is read before it is written, by the
iteration that writes it, and by no other iteration afterwards.
"""

from collections.abc import Mapping

from hlotune.schedules.ir.compute import Stage, Store, Tensor
from hlotune.schedules.ir.expr import distinct_loads
from hlotune.schedules.ir.kept_in_results import holds_temporary
from hlotune.schedules.ir.nest import LoopNest, StageNest
from hlotune.schedules.ir.regions import parallel_regions

Pair = tuple[int, int]
"""Positions of a result and of an argument, in the compute's order."""


def in_place(nest: LoopNest) -> tuple[Pair, ...]:
    """All pairs of a result and an argument that may share memory, each judged by itself.

    Pairs without an argument or a result in common may be used at the same time: what one pair
    overwrites, the stage that writes it has read before, and no later stage reads.
    """
    compute, when = nest.compute, _regions(nest)
    packed = {s.stage.loads[0].tensor for s in nest.stages if s.scope == "load" and s.stage.loads}
    readers = {
        x.name: [s for s in nest.stages if x.name in s.stage.maps] for x in compute.arguments
    }
    found = []
    for r, result in enumerate(compute.results):
        place = _written_once(nest, result)
        for a, x in enumerate(compute.arguments if place else ()):
            alike = x.role == "argument" and (result.shape, result.dtype) == (x.shape, x.dtype)
            if place and alike and x.name not in packed:
                writer, k = place
                if all(_lets(s, writer, k, x, when) for s in readers[x.name]):
                    found.append((r, a))
    return tuple(found)


def _regions(nest: LoopNest) -> dict[str, int]:
    """By stage, the number of the region in which it runs."""
    found = {s.stage.name: k for k, region in enumerate(parallel_regions(nest)) for s in region}
    for s in reversed(nest.stages):  # a consumer stands behind what is computed inside of it
        if s.at is not None:
            found[s.stage.name] = found[s.at[0]]
    return found


def _written_once(nest: LoopNest, result: Tensor) -> tuple[StageNest, int] | None:
    """The nest that writes a result, each element once, and the number of its store; none where
    an earlier stage has written there."""
    writers = [s for s in nest.stages if result.name in s.stage.stored]
    if len(writers) != 1 or writers[0].at is not None or writers[0].overrun:
        return None
    if holds_temporary(nest, result):
        return None
    (writer,) = writers
    places = [k for k, x in enumerate(writer.stage.stores) if x.tensor == result.name]
    once = len(places) == 1 and _covers(writer.stage, writer.stage.stores[places[0]], result)
    return (writer, places[0]) if once else None


def _lets(
    reader: StageNest, writer: StageNest, place: int, argument: Tensor, when: Mapping[str, int]
) -> bool:
    """Whether a reader of an argument is done with an element when it is written over."""
    if reader is writer:
        return _reads_its_own(writer, place, argument)
    return when[reader.stage.name] < when[writer.stage.name]


def _covers(stage: Stage, store: Store, result: Tensor) -> bool:
    """Whether each iteration writes one element of the result, another one than any other does."""
    own = [(((a.name, 1),), a.extent) for a in stage.parallel if a.extent > 1]
    walked = [(e.terms, n) for e, n in zip(store.index, result.shape, strict=True) if n > 1]
    begins_at_0 = all(e.constant == 0 for e in store.index)
    return begins_at_0 and stage.combine is None and sorted(own) == sorted(walked)


def _reads_its_own(writer: StageNest, place: int, argument: Tensor) -> bool:
    """Whether the stage that writes reads what it writes over alone, no later than it writes.

    The values of an iteration are computed and stored one after the other, and what one has loaded
    the next does not load again.
    """
    stage, store = writer.stage, writer.stage.stores[place]
    loads = [x for x in stage.loads if x.tensor == argument.name]
    if any(x.index != store.index or x.divisors or x.along is not None for x in loads):
        return False
    early = [x for x in distinct_loads(stage.values[: place + 1]) if x.tensor == argument.name]
    return len(early) == len(loads)

"""Which results of a finished nest may be written over which arguments.

A caller that gives an argument away, as `jax.jit` lets it with `donate_argnums`, may have a result
in the argument's memory.  That is right where each element is read before it is written, by the
iteration that writes it, and by no other iteration afterwards.
"""

from hlotune.schedules.ir.compute import Stage, Store, Tensor
from hlotune.schedules.ir.expr import distinct_loads
from hlotune.schedules.ir.nest import LoopNest, StageNest

Pair = tuple[int, int]
"""Positions of a result and of an argument, in the compute's order."""


def in_place(nest: LoopNest) -> tuple[Pair, ...]:
    """All pairs of a result and an argument that may share memory, each judged by itself.

    Pairs without an argument or a result in common may be used at the same time: what one pair
    overwrites, the stage that writes it has read before, and no later stage reads.
    """
    compute = nest.compute
    packed = {s.stage.loads[0].tensor for s in nest.stages if s.scope == "load" and s.stage.loads}
    return tuple(
        (r, a)
        for r, result in enumerate(compute.results)
        for a, argument in enumerate(compute.arguments)
        if argument.role == "argument" and argument.name not in packed
        if (result.shape, result.dtype) == (argument.shape, argument.dtype)
        if _may_share(nest, result, argument)
    )


def _may_share(nest: LoopNest, result: Tensor, argument: Tensor) -> bool:
    writers = [s for s in nest.stages if result.name in s.stage.stored]
    if len(writers) != 1 or writers[0].at is not None or writers[0].overrun:
        return False
    (writer,) = writers
    places = [k for k, x in enumerate(writer.stage.stores) if x.tensor == result.name]
    if len(places) != 1 or not _covers(writer.stage, writer.stage.stores[places[0]], result):
        return False
    readers = [s for s in nest.stages if argument.name in s.stage.maps]
    return all(
        _reads_its_own(writer, places[0], argument) if s is writer else _is_done(nest, s, writer)
        for s in readers
    )


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
    early = [x for x in distinct_loads(stage.values[: place + 1]) if x.tensor == argument.name]
    plain = all(x.index == store.index and not x.divisors and x.along is None for x in loads)
    return plain and len(early) == len(loads)


def _is_done(nest: LoopNest, reader: StageNest, writer: StageNest) -> bool:
    """Whether a stage stands in a nest at the root that is through before the writer's begins."""
    while reader.at is not None:
        reader = nest.stage(reader.at[0])
    roots = [s for s in nest.stages if s.at is None]
    return reader is not writer and roots.index(reader) < roots.index(writer)

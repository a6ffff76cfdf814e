"""Names of axes by what the operations of a kernel tie together.

Two dimensions of two values have one name where an operation walks them together: elementwise
operations tie all dimensions of their operands, a reduction those that it keeps, a transpose the
ones that it moves, a product those that it keeps and those that it sums over.  Stages over values
with the same names then have the same axes.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import contraction, numbers
from hlotune.hlo.to_compute.cumulative import cumulative
from hlotune.hlo.to_compute.index_maps import reshape_groups
from hlotune.hlo.to_compute.indexed import (
    gather_batches,
    gather_offsets,
    scatter_windows,
    start_dimensions,
)
from hlotune.hlo.to_compute.updates import merges

Dimension = tuple[int, int]
"""A value, and the number of one of its dimensions."""


def axis_names(graph: Graph, *, loose: bool = False) -> dict[int, tuple[str, ...]]:
    """For each value a name for each of its dimensions; no value has a name twice.

    `loose`: dimensions of other extents are tied too, as those of a slice and of a padded tensor.
    """
    parent: dict[Dimension, Dimension] = {}

    def root(x: Dimension) -> Dimension:
        while x in parent:
            x = parent[x]
        return x

    for op in graph.ops:
        for a, b in tied(graph, op, loose=loose):
            first, second = root(a), root(b)
            if first != second:
                parent[second] = first
    names: dict[Dimension, str] = {}
    found: dict[int, tuple[str, ...]] = {}
    for value, kind in enumerate(graph.types):
        roots = [root((value, d)) for d in range(len(kind.shape))]
        own = [names.setdefault(r, f"c{len(names)}") for r in roots]
        found[value] = tuple(_distinct(own))
    return found


def merged_names(graph: Graph, names: Mapping[int, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Names of axes that a reshape makes of several ones -> the names of these.

    A group norm's features are its groups and the features of one.
    """
    found: dict[str, tuple[str, ...]] = {}
    for op in graph.ops:
        if op.name != "stablehlo.reshape":
            continue
        sides = op.operands[0], op.results[0]
        shapes = [graph.types[v].shape for v in sides]
        for pair in reshape_groups(*shapes):
            for (one, here), (many, there) in permutations(zip(sides, pair, strict=True)):
                if len(here) == 1 and len(there) > 1:
                    parts = tuple(names[many][d] for d in there if graph.types[many].shape[d] > 1)
                    found.setdefault(names[one][here.start], parts)
    return found


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """The names, those that stood before with a mark."""
    seen = set[str]()
    for name in names:
        while name in seen:
            name += "'"
        seen.add(name)
        yield name


def tied(graph: Graph, op: Op, *, loose: bool) -> Iterator[tuple[Dimension, Dimension]]:
    """Pairs of dimensions that an operation walks together: of equal extent, or of any but 1."""
    if not op.results or not op.operands:
        return
    name = op.name.partition(".")[2]
    if name == "reduce":
        yield from _of_reduction(graph, op)
        return
    if name == "reduce_window" and not cumulative(graph, op):
        yield from _of_window(graph, op, loose=loose)
        return
    if name == "select_and_scatter":
        yield from _of_scatter(graph, op, loose=loose)
        return
    if name == "dot_general":
        yield from [] if loose else _of_product(graph, op)
        return
    result = op.results[0]
    for operand, mine, others in _pairs(graph, op, name):
        extents = graph.types[operand].shape[mine], graph.types[result].shape[others]
        if extents[0] == extents[1] or (loose and 1 not in extents):
            yield (operand, mine), (result, others)


def _pairs(graph: Graph, op: Op, name: str) -> Iterator[tuple[int, int, int]]:
    """(operand, its dimension, dimension of the result)."""
    first, target = op.operands[0], graph.types[op.results[0]].shape
    if name == "broadcast_in_dim":
        for d, t in enumerate(numbers(op, "broadcast_dimensions")):
            yield first, d, t
    elif name == "transpose":
        for t, d in enumerate(numbers(op, "permutation")):
            yield first, d, t
    elif name == "gather":
        yield from _of_gather(graph, op)
    elif merges(op):
        yield from _of_merging(graph, op)
    elif name == "dynamic_slice":
        for d in range(len(target)):
            yield first, d, d
    elif name == "reshape":
        for source, onto in reshape_groups(graph.types[first].shape, target):
            if len(source) == len(onto) == 1:
                yield first, source.start, onto.start
    else:
        for operand in op.operands:
            if len(graph.types[operand].shape) == len(target):
                for d in range(len(target)):
                    yield operand, d, d


def _of_gather(graph: Graph, op: Op) -> Iterator[tuple[int, int, int]]:
    """Whole dimensions of the operand, and those that starts and result walk together."""
    shape, sizes = graph.types[op.operands[0]].shape, numbers(op, "slice_sizes")
    for d, t in gather_offsets(graph, op).items():
        if sizes[d] == shape[d]:
            yield op.operands[0], d, t
    rank, offsets = len(graph.types[op.results[0]].shape), numbers(op, "offset_dims")
    batch = [d for d in range(rank) if d not in offsets]
    for d, b in gather_batches(graph, op):
        yield op.operands[0], d, batch[b]
    for d, t in zip(start_dimensions(graph, op), batch, strict=True):
        yield op.operands[1], d, t


def _of_merging(graph: Graph, op: Op) -> Iterator[tuple[int, int, int]]:
    """All dimensions of the operand, and those of the updates' windows that are whole."""
    result, updates = graph.types[op.results[0]].shape, graph.types[op.operands[2]].shape
    for d in range(len(result)):
        yield op.operands[0], d, d
    for w, d in scatter_windows(graph, op).items():
        if updates[w] == result[d]:
            yield op.operands[2], w, d


def _of_reduction(graph: Graph, op: Op) -> Iterator[tuple[Dimension, Dimension]]:
    inputs = op.operands[: len(op.results)]
    reduced = cast(tuple[int, ...], op["dimensions"])
    rank = len(graph.types[inputs[0]].shape)
    kept = [d for d in range(rank) if d not in reduced]
    for operand in inputs:
        for d in range(rank):
            yield (operand, d), (inputs[0], d)
    for result in op.results:
        for k, d in enumerate(kept):
            yield (result, k), (inputs[0], d)


def _of_window(graph: Graph, op: Op, *, loose: bool) -> Iterator[tuple[Dimension, Dimension]]:
    """Operands with one another, and results with them where the window is one element."""
    inputs, window = op.operands[: len(op.results)], numbers(op, "window_dimensions")
    shape = graph.types[inputs[0]].shape
    for operand, result in zip(inputs, op.results, strict=True):
        for d, n in enumerate(graph.types[result].shape):
            yield (operand, d), (inputs[0], d)
            yield (result, d), (op.results[0], d)
            if (window[d] == 1 and n == shape[d]) or (loose and 1 not in (n, shape[d])):
                yield (op.results[0], d), (inputs[0], d)


def _of_scatter(graph: Graph, op: Op, *, loose: bool) -> Iterator[tuple[Dimension, Dimension]]:
    """The result with the operand, and the source with them where the window is one element."""
    (operand, source, _), (result,) = op.operands, op.results
    window = numbers(op, "window_dimensions")
    for d, (n, m) in enumerate(
        zip(graph.types[operand].shape, graph.types[source].shape, strict=True)
    ):
        yield (result, d), (operand, d)
        if (window[d] == 1 and n == m) or (loose and 1 not in (n, m)):
            yield (source, d), (operand, d)


def _of_product(graph: Graph, op: Op) -> Iterator[tuple[Dimension, Dimension]]:
    """The dimensions of both operands that one axis of a product walks, and those of its result."""
    terms, first = contraction(graph, op), dict[str, Dimension]()
    for d, place in enumerate(terms.output):
        first |= {axis: (op.results[0], d) for axis, _ in place.terms}
    for operand, places in zip(op.operands, terms.places, strict=True):
        for d, walked in enumerate(places):
            for axis, _ in walked.index.terms:
                own = operand, d
                yield own, first.setdefault(axis, own)

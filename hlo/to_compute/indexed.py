"""Where gathers and dynamic slices read their operand, and where scatters store updates: at an
offset from a start that data decides."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.index_maps import Index
from hlotune.schedules.ir.expr import Affine


@dataclass(frozen=True, slots=True)
class Place:
    """Where along one dimension of the operand an element lies: at `offset` from the start."""

    offset: Affine
    start: tuple[int, Index] | None = None
    """The value that has the start, and where; None where the slice is at 0."""
    most: int = 0
    """The largest start: others are clamped to it, and to 0."""


def operand_places(graph: Graph, op: Op, index: Index) -> tuple[Place, ...]:
    """The place along each dimension of what a result of a gather or a dynamic slice has at
    `index`."""
    shape, sizes = graph.types[op.operands[0]].shape, numbers(op, "slice_sizes")
    if op.name == "stablehlo.dynamic_slice":
        starts = op.operands[1:]
        return tuple(
            Place(e, (v, ()), n - size)
            for e, v, n, size in zip(index, starts, shape, sizes, strict=True)
        )
    offsets = gather_offsets(graph, op)
    batch = [e for d, e in enumerate(index) if d not in numbers(op, "offset_dims")]
    mapped, along = numbers(op, "start_index_map"), dict(gather_batches(graph, op))
    found = []
    for d, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if d in along:
            found.append(Place(batch[along[d]]))
            continue
        offset = index[offsets[d]] if d in offsets else Affine()
        if d in mapped:
            start = op.operands[1], _start_index(graph, op, batch, mapped.index(d))
            found.append(Place(offset, start, n - size))
        else:
            found.append(Place(offset))
    return tuple(found)


def gather_offsets(graph: Graph, op: Op) -> dict[int, int]:
    """For each dimension of a gather's operand that slices keep, that of its result."""
    dropped = numbers(op, "collapsed_slice_dims") + numbers(op, "operand_batching_dims")
    kept = [d for d in range(len(graph.types[op.operands[0]].shape)) if d not in dropped]
    return dict(zip(kept, numbers(op, "offset_dims"), strict=True))


def gather_batches(graph: Graph, op: Op) -> Iterator[tuple[int, int]]:
    """(dimension of the operand, number of the batch dimension of the result) for those that the
    operand and the starts walk together."""
    vector = cast(int, op["index_vector_dim"])
    pairs = zip(
        numbers(op, "operand_batching_dims"), numbers(op, "start_indices_batching_dims"),
        strict=True,
    )  # fmt: skip
    for d, b in pairs:
        yield d, b - (b > vector)


def start_dimensions(graph: Graph, op: Op) -> tuple[int, ...]:
    """For each batch dimension of a gather's result that of the starts which it walks."""
    rank, vector = len(graph.types[op.operands[1]].shape), cast(int, op["index_vector_dim"])
    return tuple(d for d in range(rank) if d != vector)


def _start_index(graph: Graph, op: Op, batch: list[Affine], k: int) -> Index:
    """Where the starts have component `k` of a slice."""
    found = dict(zip(start_dimensions(graph, op), batch, strict=True))
    rank = len(graph.types[op.operands[1]].shape)
    return tuple(found[d] if d in found else Affine((), k) for d in range(rank))


def scatter_windows(graph: Graph, op: Op) -> dict[int, int]:
    """For each window dimension of a scatter's updates that of its operand."""
    dropped = numbers(op, "inserted_window_dims") + numbers(op, "input_batching_dims")
    kept = [d for d in range(len(graph.types[op.operands[0]].shape)) if d not in dropped]
    return dict(zip(numbers(op, "update_window_dims"), kept, strict=True))


def update_places(graph: Graph, op: Op, index: Index) -> tuple[Place, ...]:
    """The place along each dimension of a scatter's operand of the update at `index`.

    The scatter has no batching dimensions.
    """
    windows = {d: w for w, d in scatter_windows(graph, op).items()}
    updates, shape = (graph.types[v].shape for v in (op.operands[2], op.operands[0]))
    batch = [e for w, e in enumerate(index) if w not in windows.values()]
    mapped, found = numbers(op, "scatter_dims_to_operand_dims"), []
    for d, n in enumerate(shape):
        offset = index[windows[d]] if d in windows else Affine()
        if d not in mapped:
            found.append(Place(offset))
            continue
        start = op.operands[1], _start_index(graph, op, batch, mapped.index(d))
        found.append(Place(offset, start, n - (updates[windows[d]] if d in windows else 1)))
    return tuple(found)

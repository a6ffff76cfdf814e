"""Operations that move elements: reshapes, slices, pads, gathers, scatters and sorts."""

from collections.abc import Sequence

import numpy as np

from hlotune.deploy.to_onnx.elementwise import chosen
from hlotune.deploy.to_onnx.writer import Rule, Shape, Tensor, Writer, ints, number, refused, size
from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.oracle.window import monoids


def broadcast_in_dim(w: Writer, op: Op) -> list[Tensor]:
    """Writes a transpose and a reshape alone: later operations broadcast, or ask for all of it."""
    x, places = w.short(op.operands[0]), ints(op, "broadcast_dimensions")
    order = sorted(range(len(places)), key=places.__getitem__)
    shape = [1] * len(w.type(op.results[0]).shape)
    for d, place in enumerate(places):
        shape[place] = x.shape[d]
    return [w.reshape(w.transpose(x, order), tuple(shape))]


def reshape(w: Writer, op: Op) -> list[Tensor]:
    x, shape = w.short(op.operands[0]), w.type(op.results[0]).shape
    if size(x.shape) == 1:
        return [w.reshape(x, (1,) * len(shape))]
    return [w.reshape(w.full(op.operands[0]), shape)]


def transpose(w: Writer, op: Op) -> list[Tensor]:
    return [w.transpose(w.short(op.operands[0]), ints(op, "permutation"))]


def reverse(w: Writer, op: Op) -> list[Tensor]:
    return [reversed_along(w, w.full(op.operands[0]), ints(op, "dimensions"))]


def reversed_along(w: Writer, x: Tensor, dimensions: Sequence[int]) -> Tensor:
    if not dimensions:
        return x
    count = len(dimensions)
    given = [[-1] * count, [np.iinfo(np.int64).min] * count, dimensions, [-1] * count]
    return w.node("Slice", [x, *map(w.numbers, given)], x.dtype, x.shape)


def slice_(w: Writer, op: Op) -> list[Tensor]:
    names = ("start_indices", "limit_indices", "strides")
    return [w.cut(w.full(op.operands[0]), *(ints(op, name) for name in names))]


def concatenate(w: Writer, op: Op) -> list[Tensor]:
    parts = [w.full(v) for v in op.operands]
    kind = w.type(op.results[0])
    return [w.node("Concat", parts, kind.dtype, kind.shape, axis=number(op, "dimension"))]


def pad(w: Writer, op: Op) -> list[Tensor]:
    x, value = w.full(op.operands[0]), w.full(op.operands[1])
    wide = w.spread(x, ints(op, "interior_padding"), value)
    return [w.pad(wide, ints(op, "edge_padding_low"), ints(op, "edge_padding_high"), value)]


def along(dimension: int, extent: int, rank: int) -> Shape:
    """The shape of this rank with `extent` along one dimension and 1 along the others."""
    return tuple(extent if d == dimension else 1 for d in range(rank))


def counted(w: Writer, dimension: int, extent: int, rank: int) -> Tensor:
    """The numbers 0, 1, ... (i64) along one dimension, of extent 1 along the others."""
    return w.constant(np.arange(extent).reshape(along(dimension, extent, rank)), "i64")


def clamped(w: Writer, x: Tensor, most: int) -> Tensor:
    """Whole numbers as i64, limited to 0 to `most`."""
    wide = w.cast(x, "i64")
    return w.of("Min", w.of("Max", wide, w.constant(0, "i64")), w.constant(most, "i64"))


def dynamic_slice(w: Writer, op: Op) -> list[Tensor]:
    x, sizes = w.full(op.operands[0]), ints(op, "slice_sizes")
    moved = [d for d, n in enumerate(sizes) if n < x.shape[d]]
    if not moved:
        return [x]
    starts = [
        w.reshape(clamped(w, w.full(op.operands[1 + d]), x.shape[d] - sizes[d]), (1,))
        for d in moved
    ]
    start = w.node("Concat", starts, "i64", (len(moved),), axis=0)
    limit = w.of("Add", start, w.numbers([sizes[d] for d in moved]))
    return [w.node("Slice", [x, start, limit, w.numbers(moved)], x.dtype, sizes)]


def dynamic_update_slice(w: Writer, op: Op) -> list[Tensor]:
    x, update = w.full(op.operands[0]), w.full(op.operands[1])
    rank, places = len(x.shape), list[Tensor]()
    for d, (n, part) in enumerate(zip(x.shape, update.shape, strict=True)):
        start = clamped(w, w.full(op.operands[2 + d]), n - part)
        places.append(w.of("Add", w.reshape(start, (1,) * rank), counted(w, d, part, rank)))
    return [scattered(w, x, update, places, None, "none")]


def scattered(
    w: Writer,
    x: Tensor,
    update: Tensor,
    places: Sequence[Tensor],
    inside: Tensor | None,
    reduction: str,
) -> Tensor:
    """The tensor `x` with the elements of `update` put in, or merged, at `places`.

    Elements that are not `inside` go to an extra place behind the flat tensor, which is cut off.
    """
    count, place = size(x.shape), w.constant(0, "i64")
    for d, at in enumerate(places):
        place = w.of("Add", place, w.of("Mul", at, w.constant(size(x.shape[d + 1 :]), "i64")))
    if inside is not None:
        place = chosen(w, inside, place, w.constant(count, "i64"))
    line = w.reshape(x, (count,))
    longer = w.node("Concat", [line, w.constant([0], x.dtype)], x.dtype, (count + 1,), axis=0)
    flat = (size(update.shape),)
    given = [w.reshape(w.expand(place, update.shape), flat), w.reshape(update, flat)]
    done = w.node(
        "ScatterElements", [longer, *given], x.dtype, longer.shape, axis=0, reduction=reduction
    )
    return w.reshape(w.cut(done, [0], [count], [1]), x.shape)


def gather(w: Writer, op: Op) -> list[Tensor]:
    taken = _taken(w, op)
    if taken is not None:
        return [taken]
    x, shape = w.full(op.operands[0]), w.type(op.results[0]).shape
    rank, sizes = len(shape), ints(op, "slice_sizes")
    offsets = ints(op, "offset_dims")
    batch = [d for d in range(rank) if d not in offsets]
    dropped = (*ints(op, "collapsed_slice_dims"), *ints(op, "operand_batching_dims"))
    kept = [d for d in range(len(x.shape)) if d not in dropped]
    starts = _vectors(w, op.operands[1], number(op, "index_vector_dim"), batch, shape)
    places = {d: w.constant(0, "i64") for d in range(len(x.shape))}
    for i, d in enumerate(ints(op, "start_index_map")):
        places[d] = clamped(w, starts[i], x.shape[d] - sizes[d])
    pairs = (ints(op, "operand_batching_dims"), ints(op, "start_indices_batching_dims"))
    for d, b in zip(*pairs, strict=True):
        out = batch[b - (b > number(op, "index_vector_dim"))]
        places[d] = counted(w, out, shape[out], rank)
    for d in kept:
        out = offsets[kept.index(d)]
        places[d] = w.of("Add", places[d], counted(w, out, shape[out], rank))
    parts = [w.reshape(w.expand(places[d], shape), (*shape, 1)) for d in range(len(x.shape))]
    where = w.node("Concat", parts, "i64", (*shape, len(parts)), axis=rank)
    return [w.node("GatherND", [x, where], x.dtype, shape)]


def _vectors(
    w: Writer, value: int, vector: int, batch: Sequence[int], shape: Shape
) -> list[Tensor]:
    """One tensor for each component of the indices, of extent 1 along dimensions not in `batch`."""
    indices = w.full(value)
    spread = tuple(n if d in batch else 1 for d, n in enumerate(shape))
    if vector == len(indices.shape):
        return [w.reshape(indices, spread)]
    found, rank = [], len(indices.shape)
    for i in range(indices.shape[vector]):
        starts = [i if d == vector else 0 for d in range(rank)]
        limits = [i + 1 if d == vector else n for d, n in enumerate(indices.shape)]
        found.append(w.reshape(w.cut(indices, starts, limits, [1] * rank), spread))
    return found


def _taken(w: Writer, op: Op) -> Tensor | None:
    """The one node Gather for whole slices at places of one dimension; None for other gathers."""
    mapped, sizes = ints(op, "start_index_map"), ints(op, "slice_sizes")
    if len(mapped) != 1 or ints(op, "operand_batching_dims"):
        return None
    (d,) = mapped
    x, shape = w.full(op.operands[0]), w.type(op.results[0]).shape
    whole = all(n == x.shape[k] for k, n in enumerate(sizes) if k != d)
    if ints(op, "collapsed_slice_dims") != (d,) or sizes[d] != 1 or not whole:
        return None
    offsets = ints(op, "offset_dims")
    batch = [k for k in range(len(shape)) if k not in offsets]
    indices = w.reshape(w.full(op.operands[1]), tuple(shape[k] for k in batch))
    given = [x, clamped(w, indices, x.shape[d] - 1)]
    order = [*offsets[:d], *batch, *offsets[d:]]
    row = w.node("Gather", given, x.dtype, tuple(shape[k] for k in order), axis=d)
    return w.transpose(row, [order.index(k) for k in range(len(shape))])


REDUCTIONS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


def scatter(w: Writer, op: Op) -> list[Tensor]:
    """Writes a scatter; an update whose window does not fit into the operand is dropped whole."""
    if len(op.results) != 1:
        raise refused(op, "one result", f"{len(op.results)} of them")
    region = op.regions[0]
    names = ("none",) if region.results == region.arguments[1:] else monoids(region) or ("",)
    reduction = REDUCTIONS.get(names[0], names[0] if names[0] == "none" else None)
    x, update = w.full(op.operands[0]), w.full(op.operands[2])
    if reduction is None or (x.dtype == "i1" and reduction != "none"):
        raise refused(op, "a body that replaces, adds, multiplies or takes extremes", "another")
    places, inside = _update_places(w, op, x, update)
    return [scattered(w, x, update, places, inside, reduction)]


def _update_places(
    w: Writer, op: Op, x: Tensor, update: Tensor
) -> tuple[list[Tensor], Tensor | None]:
    """The places of the update's elements, one tensor per dimension of `x`, and a mask.

    The mask says which elements lie in windows that fit; None where all do.
    """
    window, rank = ints(op, "update_window_dims"), len(update.shape)
    dropped = (*ints(op, "inserted_window_dims"), *ints(op, "input_batching_dims"))
    kept = [d for d in range(len(x.shape)) if d not in dropped]
    batch = [d for d in range(rank) if d not in window]
    vector = number(op, "index_vector_dim")
    starts = _vectors(w, op.operands[1], vector, batch, update.shape)
    places: list[Tensor] = [w.constant(0, "i64") for _ in x.shape]
    inside: Tensor | None = None
    for i, d in enumerate(ints(op, "scatter_dims_to_operand_dims")):
        places[d] = w.cast(starts[i], "i64")
        most = x.shape[d] - (update.shape[window[kept.index(d)]] if d in kept else 1)
        fits = w.of("Equal", places[d], clamped(w, places[d], most), dtype="i1")
        inside = fits if inside is None else w.of("And", inside, fits)
    pairs = (ints(op, "input_batching_dims"), ints(op, "scatter_indices_batching_dims"))
    for d, b in zip(*pairs, strict=True):
        out = batch[b - (b > vector)]
        places[d] = counted(w, out, update.shape[out], rank)
    for d in kept:
        out = window[kept.index(d)]
        places[d] = w.of("Add", places[d], counted(w, out, update.shape[out], rank))
    return places, inside


def sort(w: Writer, op: Op) -> list[Tensor]:
    """Writes a sort by one operand, ascending or descending; the others are ordered like it."""
    key, largest = _order(op)
    d, kind = number(op, "dimension"), w.type(op.operands[key])
    if kind.dtype in ("ui64", "f16", "bf16"):
        raise refused(op, "keys of 32 or 64 bits", kind.dtype)
    narrow = {"i1", "i8", "ui8", "i16", "ui16"}
    by = "i32" if kind.dtype in narrow else "i64" if kind.dtype == "ui32" else kind.dtype
    count = w.numbers([kind.shape[d]])
    results = [(by, kind.shape), ("i64", kind.shape)]
    given = [w.cast(w.full(op.operands[key]), by), count]
    lines = w.several("TopK", given, results, axis=d, largest=largest, sorted=1)
    order = lines[1]
    return [
        w.cast(lines[0], kind.dtype)
        if k == key
        else w.node("GatherElements", [w.full(v), order], w.type(v).dtype, kind.shape, axis=d)
        for k, v in enumerate(op.operands)
    ]


def _order(op: Op) -> tuple[int, int]:
    """The number of the operand that a sort compares, and 1 where the largest comes first."""
    region = op.regions[0]
    makers = {r: o for o in region.ops for r in o.results}
    last, found = makers.get(region.results[0]), list[set[int]]()
    if last is not None and last.name == "stablehlo.compare":
        found = [_arguments_behind(region, makers, v) for v in last.operands]
        direction = str(last["comparison_direction"])
        for k in range(len(op.operands)):
            if found == [{2 * k}, {2 * k + 1}] and direction in ("LT", "GT"):
                return k, int(direction == "GT")
    raise refused(op, "a comparison of one operand with itself", "another order")


def _arguments_behind(region: Graph, makers: dict[int, Op], value: int) -> set[int]:
    """The positions of the arguments that a value is made of.

    The way may lead through selects, comparisons and constants, which only bring zeros and NaN into
    one form; -1 stands for any other operation.
    """
    if value in region.arguments:
        return {region.arguments.index(value)}
    op = makers.get(value)
    if op is None:  # a constant from around the region
        return set()
    if op.name not in ("stablehlo.select", "stablehlo.compare", "stablehlo.constant"):
        return {-1}
    return set().union(*(_arguments_behind(region, makers, v) for v in op.operands))


def top_k(w: Writer, op: Op) -> list[Tensor]:
    x, values = w.full(op.operands[0]), w.type(op.results[0])
    count, axis = number(op, "k"), len(x.shape) - 1
    results = [(x.dtype, values.shape), ("i64", values.shape)]
    found, order = w.several("TopK", [x, w.numbers([count])], results, axis=axis)
    return [found, w.cast(order, w.type(op.results[1]).dtype)]


RULES: dict[str, Rule] = {
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.reshape": reshape,
    "stablehlo.transpose": transpose,
    "stablehlo.reverse": reverse,
    "stablehlo.slice": slice_,
    "stablehlo.concatenate": concatenate,
    "stablehlo.pad": pad,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
    "stablehlo.scatter": scatter,
    "stablehlo.sort": sort,
    "chlo.top_k": top_k,
}

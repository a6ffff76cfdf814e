"""Operations that only move elements: each asks its operands for what the wanted box shows."""

from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Literal, numpy_dtype
from hlotune.hlo.oracle.bounded import UNKNOWN, Bounded, exact, joined, received, rounded, settle
from hlotune.hlo.oracle.boxes import Box, covering, extents, run, slices
from hlotune.hlo.oracle.request import Request, Rule
from hlotune.schedules.dtypes import BYTES, is_float


def constant(request: Request) -> tuple[Bounded, ...]:
    literal = cast(Literal, request.op["value"])
    return (received(literal.array()[slices(request.box)], literal.type.dtype),)


def iota(request: Request) -> tuple[Bounded, ...]:
    d, dtype = request.number("iota_dimension"), request.result.dtype
    shape = [1] * len(request.box)
    shape[d] = -1
    line = np.arange(*request.box[d])
    if is_float(dtype):
        counted = settle(line.astype(np.float64), np.zeros(line.shape), dtype, convert=True)
    else:
        counted = exact(line.astype(numpy_dtype(dtype)), dtype)
    return (counted.move(lambda x: np.broadcast_to(x.reshape(shape), request.shape)),)


def broadcast_in_dim(request: Request) -> tuple[Bounded, ...]:
    dimensions = request.ints("broadcast_dimensions")
    shape = request.type(0).shape
    wanted = tuple(
        (0, 1) if n == 1 else request.box[d] for n, d in zip(shape, dimensions, strict=True)
    )
    operand = request.operand(0, wanted)
    order = sorted(range(len(dimensions)), key=lambda i: dimensions[i])
    rank_shape = [1] * len(request.box)
    for i, d in enumerate(dimensions):
        rank_shape[d] = extents(wanted)[i]

    def spread(x: NDArray[Any]) -> NDArray[Any]:
        return np.broadcast_to(x.transpose(order).reshape(rank_shape), request.shape)

    return (operand.move(spread),)


def transpose(request: Request) -> tuple[Bounded, ...]:
    permutation = request.ints("permutation")
    wanted: list[tuple[int, int]] = [(0, 0)] * len(permutation)
    for here, there in enumerate(permutation):
        wanted[there] = request.box[here]
    return (request.operand(0, tuple(wanted)).move(lambda x: x.transpose(permutation)),)


def reverse(request: Request) -> tuple[Bounded, ...]:
    dimensions = request.ints("dimensions")
    wanted = tuple(
        (n - high, n - low) if d in dimensions else (low, high)
        for d, ((low, high), n) in enumerate(zip(request.box, request.type(0).shape, strict=True))
    )
    return (request.operand(0, wanted).move(lambda x: np.flip(x, dimensions)),)


def slice_(request: Request) -> tuple[Bounded, ...]:
    starts, steps = request.ints("start_indices"), request.ints("strides")
    wanted = tuple(
        (start + low * step, max(start + (high - 1) * step + 1, start + low * step))
        for (low, high), start, step in zip(request.box, starts, steps, strict=True)
    )
    return (request.operand(0, wanted)[tuple(slice(None, None, step) for step in steps)],)


def groups(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[range, range]]:
    """Splits the dimensions of a reshape into the smallest neighbours of equal size."""
    found, i, j = [], 0, 0
    while i < len(source) or j < len(target):
        first_i, first_j = i, j
        i, j = min(i + 1, len(source)), min(j + 1, len(target))
        while prod(source[first_i:i]) != prod(target[first_j:j]):
            shorter = prod(source[first_i:i]) < prod(target[first_j:j])
            i, j = (i + 1, j) if shorter else (i, j + 1)
        found.append((range(first_i, i), range(first_j, j)))
    return found


def reshape(request: Request) -> tuple[Bounded, ...]:
    """Numbers of elements within each group of dimensions, split or joined, lead between boxes."""
    source, target = request.type(0).shape, request.result.shape
    if 0 in extents(request.box) or 0 in source:
        return (request.operand(0).move(lambda x: x.reshape(request.shape)),)
    wanted: list[tuple[int, int]] = []
    places = []
    for inner, outer in groups(source, target):
        numbers = _numbers(tuple(target[d] for d in outer), tuple(request.box[d] for d in outer))
        box, local = _covering_box(tuple(source[d] for d in inner), numbers)
        wanted += box
        places.append(local)
    operand = request.operand(0, tuple(wanted))
    sizes = [
        prod(n for n in extents(tuple(wanted[d] for d in inner)))
        for inner, _ in groups(source, target)
    ]

    def pick(x: NDArray[Any]) -> NDArray[Any]:
        return x.reshape(sizes)[np.ix_(*places)].reshape(request.shape) if places else x

    return (operand.move(pick),)


def _numbers(shape: tuple[int, ...], box: Box) -> NDArray[np.int64]:
    """Row-major numbers of the elements of a box."""
    numbers = np.zeros((), np.int64)
    for n, (low, high) in zip(shape, box, strict=True):
        numbers = numbers[..., None] * n + np.arange(low, high)
    return numbers.reshape(-1)


def _covering_box(
    shape: tuple[int, ...], numbers: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The least box that holds the numbered elements, and their numbers within it."""
    if not shape:
        return [], numbers
    coordinates = np.unravel_index(numbers, shape)
    box = [(int(c.min()), int(c.max()) + 1) for c in coordinates]
    local = tuple(c - low for c, (low, _) in zip(coordinates, box, strict=True))
    return box, np.ravel_multi_index(local, extents(tuple(box)))


def concatenate(request: Request) -> tuple[Bounded, ...]:
    d = request.number("dimension")
    low, high = request.box[d]
    parts, start = [], 0
    for i in range(len(request.op.operands)):
        extent = request.type(i).shape[d]
        first, last = max(low - start, 0), min(high - start, extent)
        if first < last or (low == high and i == 0):
            parts.append(
                request.operand(
                    i, (*request.box[:d], (first, max(first, last)), *request.box[d + 1 :])
                )
            )
        start += extent
    return (joined(parts, lambda arrays: np.concatenate(arrays, axis=d)),)


def pad(request: Request) -> tuple[Bounded, ...]:
    lows, interiors = request.ints("edge_padding_low"), request.ints("interior_padding")
    runs = [
        run(*request.box[d], 1, -lows[d], interiors[d] + 1, n)
        for d, n in enumerate(request.type(0).shape)
    ]
    filler = request.operand(1, ())
    result = filler.move(lambda x: np.broadcast_to(x, request.shape).copy())
    real = [r for r in runs if r is not None]
    if len(real) == len(runs):
        wanted = tuple(covering([r]) for r in real)
        source = tuple(r.inputs(origin) for r, (origin, _) in zip(real, wanted, strict=True))
        operand, place = request.operand(0, wanted), tuple(r.outputs for r in real)
        result.value[place], result.bound[place] = operand.value[source], operand.bound[source]
    return (result,)


def bitcast_convert(request: Request) -> tuple[Bounded, ...]:
    """Bits in another type; along a last dimension one may become several, or the reverse."""
    source, target = request.type(0).dtype, request.result.dtype
    wider, narrower = BYTES[source] > BYTES[target], BYTES[source] < BYTES[target]
    box = (
        request.box[:-1]
        if wider
        else (*request.box, (0, BYTES[target] // BYTES[source]))
        if narrower
        else request.box
    )
    operand = request.operand(0, box)
    held = rounded(operand.value, source) if is_float(source) else operand.value
    bits = np.array(held.astype(numpy_dtype(source)), order="C").view(numpy_dtype(target))
    error = np.where(operand.bound > 0, UNKNOWN, 0.0)
    if wider:
        bits = bits.reshape(*extents(box), -1)[..., slice(*request.box[-1])]
        error = np.broadcast_to(error[..., None], bits.shape)
    elif narrower:
        bits, error = bits.reshape(request.shape), error.max(axis=-1, initial=0.0)
    result = exact(bits, target)
    return (Bounded(result.value, error, target),)


def _starts(request: Request, first: int, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
    """Clamped start indices of a dynamic slice, and whether all of them are certain."""
    starts = [request.operand(first + d, ()) for d in range(len(sizes))]
    clamped = tuple(
        min(max(int(s.value), 0), n - size)
        for s, n, size in zip(starts, request.type(0).shape, sizes, strict=True)
    )
    return clamped, all(s.is_exact for s in starts)


def _if_certain(result: Bounded, certain: bool) -> Bounded:
    return (
        result if certain else Bounded(result.value, np.full(result.shape, UNKNOWN), result.dtype)
    )


def dynamic_slice(request: Request) -> tuple[Bounded, ...]:
    starts, certain = _starts(request, 1, request.ints("slice_sizes"))
    wanted = tuple((s + low, s + high) for s, (low, high) in zip(starts, request.box, strict=True))
    return (_if_certain(request.operand(0, wanted), certain),)


def dynamic_update_slice(request: Request) -> tuple[Bounded, ...]:
    sizes = request.type(1).shape
    starts, certain = _starts(request, 2, sizes)
    result = request.operand(0, request.box).move(np.array)
    shared = tuple(
        (max(low, s), min(high, s + size))
        for (low, high), s, size in zip(request.box, starts, sizes, strict=True)
    )
    if all(low < high for low, high in shared):
        update = request.operand(
            1, tuple((a - s, b - s) for (a, b), s in zip(shared, starts, strict=True))
        )
        place = slices(shared, request.box)
        result.value[place], result.bound[place] = update.value, update.bound
    return (_if_certain(result, certain),)


def gather(request: Request) -> tuple[Bounded, ...]:
    """Index arrays for every dimension of the operand, then one look into the box around them."""
    offset_dims, shape = request.ints("offset_dims"), request.type(0).shape
    batch_dims = [d for d in range(len(request.box)) if d not in offset_dims]
    dropped = request.ints("collapsed_slice_dims") + request.ints("operand_batching_dims")
    kept = [d for d in range(len(shape)) if d not in dropped]
    starts, error = _gather_starts(request, batch_dims)
    index: list[NDArray[np.int64]] = []
    for d in range(len(shape)):
        places = starts[d]
        if d in kept:
            o = offset_dims[kept.index(d)]
            places = places + _along(np.arange(*request.box[o]), o, len(request.box))
        index.append(np.broadcast_to(places, request.shape))
    if 0 in request.shape or not shape:
        return (
            request.operand(0).move(lambda x: np.broadcast_to(x.reshape(-1)[:1], request.shape)),
        )
    wanted = tuple((int(i.min()), int(i.max()) + 1) for i in index)
    local = tuple(i - low for i, (low, _) in zip(index, wanted, strict=True))
    result = request.operand(0, wanted)[local]
    return (Bounded(result.value, result.bound + error, result.dtype),)


def _along(line: NDArray[Any], dimension: int, rank: int) -> NDArray[Any]:
    return line.reshape([-1 if d == dimension else 1 for d in range(rank)])


def _gather_starts(
    request: Request, batch_dims: list[int]
) -> tuple[list[NDArray[np.int64]], NDArray[np.float64]]:
    """The start in every dimension of the operand, of extent 1 along offsets; and its bound."""
    shape, sizes = request.type(0).shape, request.ints("slice_sizes")
    vector, mapped = request.number("index_vector_dim"), request.ints("start_index_map")
    box = [request.box[d] for d in batch_dims]
    if vector < len(request.type(1).shape):
        box.insert(vector, (0, len(mapped)))
    indices = request.operand(1, tuple(box)).move(
        lambda x: np.moveaxis(x, vector, -1) if vector < x.ndim else x[..., None]
    )
    spread = [request.shape[d] if d in batch_dims else 1 for d in range(len(request.box))]
    starts = [np.zeros([1] * len(spread), np.int64)] * len(shape)
    for i, d in enumerate(mapped):
        clamped = np.clip(indices.value[..., i].astype(np.int64), 0, shape[d] - sizes[d])
        starts[d] = clamped.reshape(spread)
    pairs = zip(
        request.ints("operand_batching_dims"),
        request.ints("start_indices_batching_dims"),
        strict=True,
    )
    for d, b in pairs:
        out = batch_dims[b - (b > vector)]
        starts[d] = _along(np.arange(*request.box[out]), out, len(request.box))
    return starts, indices.bound.max(axis=-1, initial=0.0).reshape(spread)


MOVEMENT: dict[str, Rule] = {
    "stablehlo.constant": constant,
    "stablehlo.iota": iota,
    "stablehlo.broadcast_in_dim": broadcast_in_dim,
    "stablehlo.transpose": transpose,
    "stablehlo.reshape": reshape,
    "stablehlo.reverse": reverse,
    "stablehlo.slice": slice_,
    "stablehlo.concatenate": concatenate,
    "stablehlo.pad": pad,
    "stablehlo.bitcast_convert": bitcast_convert,
    "stablehlo.dynamic_slice": dynamic_slice,
    "stablehlo.dynamic_update_slice": dynamic_update_slice,
    "stablehlo.gather": gather,
}

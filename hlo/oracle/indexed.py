"""sort, top_k and scatter: every result hangs on whole operands, so they are evaluated whole."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle import elementwise
from hlotune.hlo.oracle.bounded import PRECISIONS, UNKNOWN, Bounded, quantum, settle
from hlotune.hlo.oracle.request import Request, Rule, unsupported
from hlotune.hlo.oracle.window import MONOIDS, captured, monoids
from hlotune.schedules.dtypes import is_float

LONGEST_SORT = 4096
"""Elements of a line whose comparisons, all with all, are held at once."""


def sort(request: Request) -> tuple[Bounded, ...]:
    """Stable; the place of an element is the number of those before it."""
    d = request.number("dimension")
    operands = [x.move(lambda a: np.moveaxis(a, d, -1)) for x in request.operands()]
    shape, length = operands[0].shape, operands[0].shape[-1]
    if length > LONGEST_SORT:
        raise unsupported(f"lines of up to {LONGEST_SORT} elements to sort", str(length))
    count = operands[0].value.size // max(length, 1)
    lines = [x.move(lambda a: a.reshape(count, length)) for x in operands]
    outer = captured(request, request.op.regions[0])
    parts = [
        _sorted(request, [x[i : i + 1] for x in lines], outer) for i in range(lines[0].shape[0])
    ]
    results = []
    for k, x in enumerate(operands):
        value = np.concatenate([p[k].value for p in parts] or [x.value])
        bound = np.concatenate([p[k].bound for p in parts] or [x.bound])
        both = Bounded(value.reshape(shape), bound.reshape(shape), x.dtype)
        results.append(both.move(lambda a: np.moveaxis(a, -1, d)))
    return tuple(results)


def _sorted(request: Request, line: list[Bounded], outer: dict[int, Bounded]) -> list[Bounded]:
    pairs = [side for x in line for side in (x[:, :, None], x[:, None, :])]
    before = elementwise.fold(request.op.regions[0], pairs, outer)[0]
    ahead = before.value[0]
    ties = np.triu(~ahead & ~ahead.T, 1)
    places = ahead.sum(axis=0) + ties.sum(axis=0)
    doubt = np.broadcast_to(before.bound[0] > 0, ahead.shape).copy()
    np.fill_diagonal(doubt, False)
    unsure = doubt.any(axis=0) | doubt.any(axis=1)
    order = np.argsort(places, kind="stable")
    results = []
    for x in line:
        # sorted elements alone move no more than they err, whichever of two comes first
        lost = x.bound.max(initial=0.0) if len(line) == 1 and is_float(x.dtype) else UNKNOWN
        bound = np.where(unsure, lost, x.bound[0])[order]
        results.append(Bounded(x.value[:, order], bound[None], x.dtype))
    return results


def top_k(request: Request) -> tuple[Bounded, ...]:
    """Largest first; equal elements in order of their places."""
    x, k = request.operand(0), request.number("k")
    key = -x.value.astype(np.float64) if is_float(x.dtype) else ~x.value
    order = np.argsort(key, axis=-1, kind="stable")
    value, bound = (
        np.take_along_axis(a, order, axis=-1) for a in (x.value, np.ascontiguousarray(x.bound))
    )
    doubt = np.zeros(value.shape, np.bool_)
    if is_float(x.dtype):
        reach = bound[..., 1:] + bound[..., :-1]
        near = (reach > 0) & (value[..., :-1] - value[..., 1:] <= reach)
        doubt[..., 1:] |= near
        doubt[..., :-1] |= near
    bound = np.where(doubt, bound.max(axis=-1, keepdims=True, initial=0.0), bound)[..., :k]
    index = Bounded(order[..., :k].astype(np.int32), np.where(doubt, UNKNOWN, 0.0)[..., :k], "i32")
    return Bounded(value[..., :k], bound, x.dtype), index


def scatter(request: Request) -> tuple[Bounded, ...]:
    """Updates whose window leaves the operand are dropped, as XLA does."""
    count = len(request.op.results)
    region = request.op.regions[0]
    replaced = region.results == region.arguments[count:]
    names = ("replace",) * count if replaced else monoids(region)
    if names is None:
        raise unsupported("scatter to replace or to combine by a known monoid", "another region")
    places, inside, certain = _scatter_places(request)
    return tuple(
        _scattered(
            name, request.operand(k), request.operand(count + 1 + k), places, inside, certain
        )
        for k, name in enumerate(names)
    )


def _scatter_places(
    request: Request,
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.bool_], bool]:
    """The place in the operand of each element of the update, whether the element counts, and
    whether all of this is certain.
    """
    count = len(request.op.results)
    shape, updates = request.type(0).shape, request.type(count + 1).shape
    window, vector = request.ints("update_window_dims"), request.number("index_vector_dim")
    dropped = request.ints("inserted_window_dims") + request.ints("input_batching_dims")
    kept = [d for d in range(len(shape)) if d not in dropped]
    batch = [d for d in range(len(updates)) if d not in window]
    indices = request.operand(count)
    values = (
        np.moveaxis(indices.value, vector, -1)
        if vector < indices.value.ndim
        else indices.value[..., None]
    )
    spread = [updates[d] if d in batch else 1 for d in range(len(updates))]
    places: list[Any] = [np.zeros([1] * len(updates), np.int64) for _ in shape]
    for i, d in enumerate(request.ints("scatter_dims_to_operand_dims")):
        places[d] = values[..., i].astype(np.int64).reshape(spread)
    pairs = zip(
        request.ints("input_batching_dims"),
        request.ints("scatter_indices_batching_dims"),
        strict=True,
    )
    for d, b in pairs:
        places[d] = _along(batch[b - (b > vector)], updates)
    inside: Any = np.ones([1] * len(updates), np.bool_)
    for d, n in enumerate(shape):
        size = updates[window[kept.index(d)]] if d in kept else 1
        inside = inside & (places[d] >= 0) & (places[d] + size <= n)
        if d in kept:
            places[d] = places[d] + _along(window[kept.index(d)], updates)
    full = tuple(np.broadcast_to(p, updates) for p in places)
    return full, np.broadcast_to(inside, updates), indices.is_exact


def _along(dimension: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.arange(shape[dimension]).reshape(
        [-1 if d == dimension else 1 for d in range(len(shape))]
    )


def _scattered(
    name: str,
    operand: Bounded,
    update: Bounded,
    places: tuple[NDArray[np.int64], ...],
    inside: NDArray[np.bool_],
    certain: bool,
) -> Bounded:
    at = tuple(p[inside] for p in places)
    value, bound = operand.value.copy(), np.array(operand.bound)
    given, error = update.value[inside], update.bound[inside]
    if name == "replace":
        value[at], bound[at] = given, error
    elif name == "add" and is_float(operand.dtype):
        return _certain(_added(operand, given, error, at), certain)
    else:
        MONOIDS[name].at(value, at, given)
        np.maximum.at(bound, at, error)
        if name == "multiply" and is_float(operand.dtype):
            raise unsupported("scatter of floats to add, replace or take extremes", "multiply")
    return _certain(Bounded(value, bound, operand.dtype), certain)


def _added(
    operand: Bounded, given: NDArray[Any], error: NDArray[Any], at: tuple[NDArray[np.int64], ...]
) -> Bounded:
    value, bound, weight = operand.value.copy(), np.array(operand.bound), np.abs(operand.value)
    count = np.zeros(value.shape)
    for total, parts in ((value, given), (bound, error), (weight, np.abs(given)), (count, 1.0)):
        np.add.at(total, at, parts)
    precision = PRECISIONS[operand.dtype]
    own = np.where(count > 1, precision.eps * np.sqrt(count + 1) * weight, 0.0)
    grid = quantum(np.append(operand.value, given)) if not bound.any() else None
    if grid is not None:
        own = np.where(weight <= grid * 2.0**precision.digits, 0.0, own)
    return settle(value, bound + own, operand.dtype)


def _certain(result: Bounded, certain: bool) -> Bounded:
    return (
        result if certain else Bounded(result.value, np.full(result.shape, UNKNOWN), result.dtype)
    )


INDEXED: dict[str, Rule] = {
    "stablehlo.sort": sort,
    "chlo.top_k": top_k,
    "stablehlo.scatter": scatter,
}

"""select_and_scatter, as in gradients of maximum pooling."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph
from hlotune.hlo.oracle import elementwise
from hlotune.hlo.oracle.bounded import PRECISIONS, UNKNOWN, Bounded, settle
from hlotune.hlo.oracle.boxes import run, slices
from hlotune.hlo.oracle.request import Request, unsupported
from hlotune.hlo.oracle.window import captured, monoids

NOWHERE = 0, 0
"""The range of no window."""


def select_and_scatter(request: Request) -> tuple[Bounded, ...]:
    """The element that each window selects receives the window's source value; gifts add up.

    The windows that reach into the box are evaluated, and all that they choose among.
    """
    select, scatter = request.op.regions
    if monoids(scatter) != ("add",):
        raise unsupported("select_and_scatter to add what it scatters", "another region")
    reaches = [_reach(request, d) for d in range(len(request.box))]
    start = request.operand(2)
    if any(r.windows == NOWHERE for r in reaches):
        return (start.move(lambda x: np.broadcast_to(x, request.shape)),)
    operand = request.operand(0, tuple(r.places for r in reaches))
    source = request.operand(1, tuple(r.windows for r in reaches))
    place, doubtful = _selected(request, operand, source, select, [r.padding for r in reaches])
    given, count = np.zeros(operand.shape), np.zeros(operand.shape)
    weight, error = np.zeros(operand.shape), np.zeros(operand.shape)
    np.add.at(given.reshape(-1), place, source.value.astype(np.float64))
    np.add.at(count.reshape(-1), place, 1.0)
    np.add.at(weight.reshape(-1), place, np.abs(source.value))
    np.add.at(error.reshape(-1), place, source.bound)
    error.reshape(-1)[doubtful] = UNKNOWN
    own = PRECISIONS[operand.dtype].eps * np.sqrt(count) * weight
    error = error + np.where(count > 1, own, 0.0)
    cut = slices(request.box, tuple(r.places for r in reaches))
    return (settle(given[cut] + start.value, error[cut] + start.bound, operand.dtype),)


@dataclass(frozen=True, slots=True)
class _Reach:
    """One dimension of the windows that reach into a box."""

    windows: tuple[int, int]
    places: tuple[int, int]
    """The box with all places of these windows."""
    padding: int
    """Places of the first of these windows ahead of those; negative where it begins behind."""


def _reach(request: Request, d: int) -> _Reach:
    (low, high), window = request.box[d], request.ints("window_dimensions")[d]
    stride, padding = request.ints("window_strides")[d], request.pairs("padding")[d][0]
    extent, windows = request.result.shape[d], request.type(1).shape[d]
    first = max(0, -((window - 1 - low - padding) // stride))
    last = min(windows - 1, (high - 1 + padding) // stride)
    if first > last or high <= low:
        return _Reach(NOWHERE, (low, high), 0)
    begin = min(low, max(0, first * stride - padding))
    end = max(high, min(extent, last * stride - padding + window))
    return _Reach((first, last + 1), (begin, end), padding + begin - first * stride)


def _selected(
    request: Request, operand: Bounded, source: Bounded, select: Graph, padding: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flat place in the operand that each window selects, and places whose choice is in doubt."""
    window, strides = request.ints("window_dimensions"), request.ints("window_strides")
    shape = operand.shape
    number = np.arange(operand.value.size).reshape(shape)
    best: NDArray[Any] = np.zeros(source.shape, operand.value.dtype)
    place = np.full(source.shape, -1)
    best_bound = np.zeros(source.shape)
    doubtful: list[NDArray[np.int64]] = []
    for tap in product(*(range(n) for n in window)):
        tap_runs = [
            run(0, n, strides[d], t - padding[d], 1, shape[d])
            for d, (t, n) in enumerate(zip(tap, source.shape, strict=True))
        ]
        runs = [r for r in tap_runs if r is not None]
        if len(runs) < len(tap_runs):
            continue
        out: tuple[slice, ...] = tuple(r.outputs for r in runs)
        inside: tuple[slice, ...] = tuple(r.inputs(0) for r in runs)
        old = Bounded(best[out], best_bound[out], operand.dtype)
        keep = elementwise.fold(select, (old, operand[inside]), captured(request, select))[0]
        empty = place[out] < 0
        unsure = ~empty & (keep.bound > 0)
        doubtful += [place[out][unsure], number[inside][unsure]]
        take = empty | ~keep.value
        best[out] = np.where(take, operand.value[inside], best[out])
        best_bound[out] = np.where(take, operand.bound[inside], best_bound[out])
        place[out] = np.where(take, number[inside], place[out])
    nowhere = np.zeros(0, np.int64)
    return place, np.concatenate([nowhere, *doubtful])

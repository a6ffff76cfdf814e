"""Cumulative reductions: every prefix along an axis, with the bound of a fold in any order."""

from math import log2, sqrt
from typing import Any

import numpy as np

from hlotune.hlo.graph import Graph
from hlotune.hlo.oracle.bounded import (
    PRECISIONS,
    Bounded,
    Float,
    Precision,
    exact,
    joined,
    quantum,
    settle,
)
from hlotune.hlo.oracle.elementwise import fold
from hlotune.hlo.oracle.request import Request
from hlotune.hlo.oracle.window import MONOIDS, Fold
from hlotune.hlo.to_compute.cumulative import Cumulative


def accumulated(request: Request, found: Cumulative) -> tuple[Bounded, ...]:
    """The elements of a box, each merged with all those before it along the axis."""
    d, count = found.dimension, len(request.op.results)
    low, high = request.box[d]
    extent = request.type(0).shape[d]
    span = (low, extent) if found.reverse else (0, high)
    box = (*request.box[:d], span, *request.box[d + 1 :])

    def turned(x: Any) -> Any:
        moved = np.moveaxis(x, d, 0)
        return moved[::-1] if found.reverse else moved

    def back(x: Any) -> Any:
        kept = x[len(x) - (high - low) :]
        return np.moveaxis(kept[::-1] if found.reverse else kept, 0, d)

    folding = Fold(request, span[1] - span[0])
    starts = [request.operand(count + k, ()) for k in range(count)]
    values = folding.wide([request.operand(k, box).move(turned) for k in range(count)])
    if folding.names is None:
        # what a region begins with is its identity: all that windows are padded with
        log_sums = is_logsumexp(folding.region)
        prefixes = [_logsumexps(values[0])] if log_sums else _by_region(folding, values)
        return folding.finish([x.move(back) for x in prefixes])
    precisions = [PRECISIONS.get(dtype) for dtype in folding.dtypes]
    prefixes = [_prefixes(*each) for each in zip(folding.names, values, precisions, strict=True)]
    shape = prefixes[0].shape
    begun = [x.move(lambda v: np.broadcast_to(v, shape)) for x in starts]
    return folding.finish([x.move(back) for x in folding.pair(begun, prefixes)])


def _prefixes(name: str, stack: Bounded, precision: Precision | None) -> Bounded:
    """Along the first axis, by an operation that NumPy accumulates.

    `precision` is that of the result's type: a kernel may round every prefix to it.
    """
    function = MONOIDS[name]
    if precision is None:
        value = function.accumulate(stack.value, axis=0, dtype=stack.value.dtype)
        return Bounded(value, np.maximum.accumulate(stack.bound, axis=0), stack.dtype)
    if name == "add":
        return _sums(stack, precision)
    if name == "multiply":
        return _products(stack, precision)
    value = function.accumulate(stack.value, axis=0)
    high = function.accumulate(stack.value + stack.bound, axis=0)
    low = function.accumulate(stack.value - stack.bound, axis=0)
    error = np.nan_to_num(np.maximum(high - value, value - low), nan=0.0, posinf=np.inf)
    return Bounded(value, error, stack.dtype)


def _roots(stack: Bounded) -> Float:
    """The square root of each prefix's number of terms, by which a bound is multiplied."""
    terms = np.arange(1, len(stack.value) + 1, dtype=np.float64)
    roots: Float = np.sqrt(terms).reshape(-1, *[1] * (stack.value.ndim - 1))
    return roots


def _sums(stack: Bounded, precision: Precision) -> Bounded:
    finite = np.nan_to_num(np.abs(stack.value), nan=0.0, posinf=0.0)
    magnitude = np.add.accumulate(finite, axis=0)
    error = np.add.accumulate(stack.bound, axis=0)
    own = precision.eps * _roots(stack) * magnitude
    own[0] = 0.0
    error = error + own
    if stack.is_exact and (grid := quantum(finite)) is not None:
        error = np.where(magnitude <= grid * 2.0**precision.digits, 0.0, error)
    return settle(np.add.accumulate(stack.value, axis=0), error, stack.dtype)


def _products(stack: Bounded, precision: Precision) -> Bounded:
    value = np.multiply.accumulate(stack.value, axis=0)
    size = np.abs(stack.value)
    most = np.multiply.accumulate(size + stack.bound, axis=0)
    least = np.multiply.accumulate(size, axis=0)
    error = most - least
    own = precision.eps * _roots(stack) * np.abs(value)
    return settle(value, error + np.where(_is_held(value, precision), 0.0, own), stack.dtype)


def _is_held(value: Any, precision: Precision) -> Any:
    """Whether a type holds these values, and all those that their products went through."""
    whole = (np.rint(value) == value) & (np.abs(value) <= 2.0**precision.digits)
    return np.logical_and.accumulate(whole, axis=0)


LOGSUMEXP = (
    "maximum", "subtract", "compare", "add", "abs", "negate", "exponential", "log_plus_one", "add",
    "select",
)  # fmt: skip
"""The operations of the region by which JAX merges logarithms of sums of exponentials."""


def is_logsumexp(region: Graph) -> bool:
    """By its operations, and by what it makes of a few pairs."""
    if sorted(op.name.partition(".")[2] for op in region.ops) != sorted(LOGSUMEXP):
        return False
    left, right = np.meshgrid([-30.0, -0.5, 0.0, 2.0], [-1.0, 0.25, 3.0, 40.0])
    dtype = region.types[region.arguments[0]].dtype
    (found,) = fold(region, (exact(left, dtype), exact(right, dtype)), {})
    return bool(np.allclose(found.value, np.logaddexp(left, right), rtol=1e-5))


def _logsumexps(stack: Bounded) -> Bounded:
    """Weights of the terms add up to one, so that errors of the operands do not.

    A merge rounds a sum, and a logarithm that is at most log 2, of an exponential of at most 1.
    """
    value = np.logaddexp.accumulate(stack.value, axis=0)
    largest = np.maximum.accumulate(np.nan_to_num(np.abs(value), posinf=0.0), axis=0)
    own = PRECISIONS[stack.dtype].eps * _roots(stack) * (largest + 2.0)
    own[0] = 0.0
    error = np.maximum.accumulate(stack.bound, axis=0) + own
    return settle(value, error, stack.dtype)


def _by_region(fold: Fold, values: list[Bounded]) -> list[Bounded]:
    """By doubling distances; the bound is then raised from that of a tree to any order's."""
    found, distance, length = values, 1, values[0].shape[0]
    while distance < length:
        merged = fold.pair([x[:-distance] for x in found], [x[distance:] for x in found])
        found = [
            joined((x[:distance], m), lambda arrays: np.concatenate(arrays, axis=0))
            for x, m in zip(found, merged, strict=True)
        ]
        distance *= 2
    factor = max(1.0, sqrt(length) / max(1.0, log2(max(length, 2))))
    return [Bounded(x.value, x.bound * factor, x.dtype) for x in found]

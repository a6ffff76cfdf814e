"""reduce and reduce_window: folding many elements into one.

Every reduction becomes a stack of terms along a first axis.  Known monoids fold by NumPy; any other
region is evaluated on pairs of neighbours, until one is left.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from math import log2, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph, numpy_dtype
from hlotune.hlo.oracle import elementwise
from hlotune.hlo.oracle.bounded import (
    PRECISIONS,
    UNKNOWN,
    Bounded,
    Float,
    Precision,
    joined,
    quantum,
    settle,
)
from hlotune.hlo.oracle.boxes import assemble, covering, elements, run, slabs
from hlotune.hlo.oracle.request import Request
from hlotune.schedules.dtypes import accumulator, is_float

SLAB_ELEMENTS = 1 << 22
MONOIDS: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


NEUTRAL = {"add": 0, "multiply": 1, "xor": 0}
"""What changes nothing, where it is no extreme of the type."""


def identity(name: str, like: Bounded) -> Any:
    """What a monoid begins at, in the type of a value."""
    if name in NEUTRAL:
        return NEUTRAL[name]
    low = name in ("maximum", "or")
    if is_float(like.dtype):
        return -np.inf if low else np.inf
    if like.dtype == "i1":
        return not low
    if name in ("and", "or"):
        return np.array(0 if low else -1).astype(like.value.dtype)
    limits: Any = np.iinfo(str(numpy_dtype(like.dtype)))
    return limits.min if low else limits.max


def monoids(region: Graph) -> tuple[str, ...] | None:
    """The operation of each result, where each is a known monoid of its own two arguments."""
    count = len(region.results)
    makers = {op.results[0]: op for op in region.ops}
    names = []
    for k, result in enumerate(region.results):
        op = makers.get(result)
        pair = {region.arguments[k], region.arguments[count + k]}
        name = op.name.partition(".")[2] if op is not None else ""
        if op is None or name not in MONOIDS or set(op.operands) != pair:
            return None
        names.append(name)
    return tuple(names)


def captured(request: Request, region: Graph) -> dict[int, Bounded]:
    """What a region takes from the graph around it."""
    return {
        v: request.values(v, tuple((0, n) for n in request.graph.types[v].shape))
        for _, v in region.captures
    }


class Fold:
    """The region of a reduction over `terms` elements a result."""

    def __init__(self, request: Request, terms: int) -> None:
        self.region, self.terms = request.op.regions[0], terms
        self.names = monoids(self.region)
        self.outer: Mapping[int, Bounded] = captured(request, self.region)
        self.dtypes = [request.graph.types[v].dtype for v in request.op.results]

    def wide(self, values: Sequence[Bounded]) -> list[Bounded]:
        """Sums and products of narrow floats are taken in f32, and rounded once at the end."""
        names = self.names or ()
        kept = [
            n not in ("add", "multiply") or not is_float(x.dtype)
            for n, x in zip(names, values, strict=False)
        ]
        kept += [True] * (len(values) - len(kept))
        return [
            x if keep else Bounded(x.value, x.bound, accumulator(x.dtype))
            for x, keep in zip(values, kept, strict=True)
        ]

    def stack(self, stacks: Sequence[Bounded]) -> list[Bounded]:
        """Folds along the first axis."""
        stacks = self.wide(stacks)
        if self.names is None:
            return self._by_region(stacks)
        return [
            _fold(name, s, self.terms, PRECISIONS.get(dtype))
            for name, s, dtype in zip(self.names, stacks, self.dtypes, strict=True)
        ]

    def hole(self, k: int, start: Bounded) -> Bounded:
        """What stands where part `k` of a window has no element: XLA leaves these out."""
        neutral = NEUTRAL.get(self.names[k]) if self.names else None
        if neutral is None:
            return start
        return start.move(lambda x: np.full_like(x, neutral))

    def begins_at_identity(self, starts: Sequence[Bounded]) -> bool:
        """Whether no start changes what it is merged with; of unknown regions that is believed."""
        if self.names is None:
            return True
        pairs = zip(self.names, starts, strict=True)
        return all(bool(x.value == identity(name, x)) for name, x in pairs)

    def pair(self, left: Sequence[Bounded], right: Sequence[Bounded]) -> list[Bounded]:
        """Combines two partial results."""
        return list(
            elementwise.fold(self.region, (*self.wide(left), *self.wide(right)), self.outer)
        )

    def finish(self, values: Sequence[Bounded]) -> tuple[Bounded, ...]:
        return tuple(
            elementwise.convert(x, dtype) if x.dtype != dtype else x
            for x, dtype in zip(values, self.dtypes, strict=True)
        )

    def _by_region(self, stacks: Sequence[Bounded]) -> list[Bounded]:
        """Merges stacks in pairs of neighbours; then raises the bound from that of a tree to that
        of any order.
        """
        values = list(stacks)
        while (count := values[0].shape[0]) > 1:
            pairs = self.pair(
                [x[0 : count - 1 : 2] for x in values], [x[1:count:2] for x in values]
            )
            rest = [x[count - count % 2 :] for x in values]
            values = [
                joined((p, r), lambda arrays: np.concatenate(arrays, axis=0)) if count % 2 else p
                for p, r in zip(pairs, rest, strict=True)
            ]
        factor = max(1.0, sqrt(self.terms) / max(1.0, log2(max(self.terms, 2))))
        return [Bounded(x.value[0], x.bound[0] * factor, x.dtype) for x in values]


def _fold(name: str, stack: Bounded, terms: int, precision: Precision | None) -> Bounded:
    """`precision` is that of the result's type: a kernel may round every partial result to it."""
    if precision is None:
        value = MONOIDS[name].reduce(stack.value, axis=0, dtype=stack.value.dtype)
        return Bounded(value, stack.bound.max(axis=0, initial=0.0), stack.dtype)
    if name == "add":
        return _sum(stack, terms, precision)
    if name == "multiply":
        return _product(stack, terms, precision)
    return _extreme(MONOIDS[name], stack)


def _sum(stack: Bounded, terms: int, precision: Precision) -> Bounded:
    finite = np.nan_to_num(np.abs(stack.value), nan=0.0, posinf=0.0)
    magnitude = finite.sum(axis=0)
    error = stack.bound.sum(axis=0) + (
        precision.eps * sqrt(terms) * magnitude if terms > 1 else 0.0
    )
    if stack.is_exact:
        grid = quantum(finite)
        if grid is not None:
            error = np.where(magnitude <= grid * 2.0**precision.digits, 0.0, error)
    return settle(stack.value.sum(axis=0), error, stack.dtype)


def _product(stack: Bounded, terms: int, precision: Precision) -> Bounded:
    value = np.multiply.reduce(stack.value, axis=0)
    error = np.zeros(value.shape)
    if not stack.is_exact:
        size = np.abs(stack.value)
        error = np.multiply.reduce(size + stack.bound, axis=0) - np.multiply.reduce(size, axis=0)
    ulps = sqrt(max(terms, 1)) * precision.eps / PRECISIONS[stack.dtype].eps
    whole = np.all(stack.value == np.rint(stack.value)) & (np.abs(value) <= 2.0**53)
    left = np.where(whole, 0.0, 1.0) if stack.dtype == "f64" else 0.0
    return settle(value, error, stack.dtype, ulps, residual=left)


def _extreme(function: Any, stack: Bounded) -> Bounded:
    value = function.reduce(stack.value, axis=0)
    if stack.is_exact:
        return Bounded(value, np.zeros(value.shape), stack.dtype)
    high = function.reduce(stack.value + stack.bound, axis=0)
    low = function.reduce(stack.value - stack.bound, axis=0)
    error: Float = np.maximum(high - value, value - low)
    return Bounded(
        value,
        np.where(
            np.isnan(error) & ~np.isnan(value),
            UNKNOWN,
            np.nan_to_num(error, nan=0.0, posinf=np.inf),
        ),
        stack.dtype,
    )


def reduce(request: Request) -> tuple[Bounded, ...]:
    """Slab by slab along the longest reduced dimension, so that no operand is ever held whole."""
    reduced, shape = request.ints("dimensions"), request.type(0).shape
    kept = [d for d in range(len(shape)) if d not in reduced]
    lengths = tuple(shape[d] for d in reduced)
    count = len(request.op.results)
    fold = Fold(request, prod(lengths))
    partial: list[Bounded] = [
        request.operand(count + k, ()).move(lambda x: np.broadcast_to(x, request.shape))
        for k in range(count)
    ]
    partial = fold.wide(partial)
    for slab in slabs(lengths, SLAB_ELEMENTS // max(elements(request.box), 1)):
        box, count_here = assemble(len(shape), (kept, request.box), (reduced, slab)), elements(slab)
        if not count_here:
            continue

        def stacked(x: NDArray[Any], terms: int = count_here) -> NDArray[Any]:
            return x.transpose(*reduced, *kept).reshape(terms, *request.shape)

        partial = fold.pair(
            partial, fold.stack([request.operand(k, box).move(stacked) for k in range(count)])
        )
    return fold.finish(partial)


def reduce_window(request: Request) -> tuple[Bounded, ...]:
    """The elements of every window stacked, holes and padding holding the initial value."""
    window = request.ints("window_dimensions")
    size = prod(window) * max(elements(request.box), 1)
    boxes = request.split(-(-size // SLAB_ELEMENTS))
    parts = [_windows(request.within(box), window) for box in boxes]
    if len(parts) == 1:
        return parts[0]
    d = next(i for i, (a, b) in enumerate(zip(boxes[0], boxes[1], strict=True)) if a != b)
    return tuple(
        joined(p, lambda arrays: np.concatenate(arrays, axis=d)) for p in zip(*parts, strict=True)
    )


def _windows(request: Request, window: tuple[int, ...]) -> tuple[Bounded, ...]:
    strides, padding = request.ints("window_strides"), request.pairs("padding")
    holes, spread = request.ints("base_dilations"), request.ints("window_dilations")
    shape, count = request.type(0).shape, len(request.op.results)
    runs = [
        [
            run(low, high, strides[d], t * spread[d] - padding[d][0], holes[d], shape[d])
            for t in range(window[d])
        ]
        for d, (low, high) in enumerate(request.box)
    ]
    box = tuple(covering(line) for line in runs)
    taps = list(product(*runs))
    fold = Fold(request, prod(window))
    starts = [request.operand(count + k, ()) for k in range(count)]
    stacks = []
    for k, start in enumerate(starts):
        operand, hole = request.operand(k, box), fold.hole(k, start)
        stack = hole.move(lambda x: np.broadcast_to(x, (len(taps), *request.shape)).copy())
        for i, tap in enumerate(taps):
            real = [r for r in tap if r is not None]
            if len(real) == len(tap):
                place: tuple[Any, ...] = (i, *(r.outputs for r in real))
                source = tuple(r.inputs(low) for r, (low, _) in zip(real, box, strict=True))
                stack.value[place] = operand.value[source]
                stack.bound[place] = operand.bound[source]
        stacks.append(stack)
    folded = fold.stack(stacks)
    if not fold.begins_at_identity(starts):
        begun = [x.move(lambda a: np.broadcast_to(a, request.shape)) for x in starts]
        folded = fold.pair(begun, folded)
    return fold.finish(folded)

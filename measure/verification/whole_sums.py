"""All elements of a result that is a contraction's sums, compared by random weights.

The oracle adds up some boxes of a large result; a register tile that is wrong elsewhere is not in
them.  Of integers all sums are exact, so those of a result, weighed over one dimension by random
integers, are equal to what `projected` adds up of the operands, at a small part of the cost.  An
element that is wrong alone always shows, as no weight is zero; several in one sum hide one another
for at most one weight of `2 * LARGEST_WEIGHT`.  (Freivalds 1977, see `hlo/oracle/projection.py`.)
An epilogue is undone on the result, where it can be.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hlotune.hlo.default_precision import leaves_precision
from hlotune.hlo.graph import Graph, TensorType, numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.bounded import PRECISIONS, Bounded, Float, as_multiplied, quantum
from hlotune.hlo.oracle.boxes import whole
from hlotune.hlo.oracle.contraction import terms_of
from hlotune.hlo.oracle.projection import (
    Dimension,
    Step,
    Way,
    longest_dimension,
    projected,
    way_of,
    weighed,
)
from hlotune.measure.verification.inputs import Array, Domain, domains, whole_numbers
from hlotune.measure.verification.repeated import is_large, repeated
from hlotune.schedules.dtypes import BYTES, has_kernels, is_float, is_unsigned
from hlotune.schedules.errors import WrongResult

LARGEST_WEIGHT = 512
MOST_ELEMENTS = 1 << 26
"""Larger operands and results are not compared so: they take long to widen."""
MOST_DIGITS = 24
"""Sums times weights have to be exact in f64, and partial sums in f32."""
NARROW_DIGITS = 12
"""Sums of so few digits need operands that are mostly zeros."""
ROUNDED_DIGITS = 5
"""Digits that are put by for an epilogue that rounds: it is undone to the nearest integer."""
MOST_MOVED = 1 / 64
"""The part of the grid that the bound of another operand may be: kernels may be off by some
bounds, and several steps may be."""
SPARE = 4
"""Sums of sparse operands have so many times fewer terms that are not zero than they may."""
LEAST_AVERAGE = 16.0
"""Sums that have fewer terms on average differ more from it."""
_MOVES = {"stablehlo.convert", "stablehlo.transpose", "stablehlo.reshape"}
_LARGEST = 4


@dataclass(frozen=True)
class WholeSums:
    """What the weighed sums of one result are."""

    result: int
    way: Way
    others: tuple[Float | None, ...]
    """For each step of the way its other operand."""
    dimension: Dimension
    weights: Float
    grid: float
    """All sums are multiples of it."""
    expected: Float

    @property
    def bytes(self) -> int:
        kept = (self.expected, self.weights, *(x for x in self.others if x is not None))
        return sum(x.nbytes for x in kept)

    def check(self, results: Sequence[NDArray[np.generic]], kind: str, *, reorders: bool) -> None:
        """Raises WrongResult where the weighed sums of a result are others."""
        with np.errstate(all="ignore"):
            sums = self._undone(results[self.result])
            if not reorders or not all(s.op.name in _MOVES for s in self.way.steps):
                sums = np.rint(sums / sums.dtype.type(self.grid)) * sums.dtype.type(self.grid)
            d = self.dimension
            got = weighed(sums, d.of_result, self.weights, d.groups)
        wrong = ~(got == self.expected)
        if wrong.any():
            first = tuple(map(int, np.argwhere(wrong)[0]))
            raise WrongResult(
                f"expected the sums of result {self.result} over its elements along dimension "
                f"{d.of_result} of the contraction, weighed by random integers, to be those of its "
                f"operands with {kind} inputs, got {int(wrong.sum())} of {wrong.size} others, the "
                f"first at {first}: {got[first]:.9g} in place of {self.expected[first]:.9g}"
            )

    def _undone(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sums of which an epilogue made the values; of other sums others."""
        if values.dtype not in (np.float32, np.float64):
            values = values.astype(np.float32 if values.dtype.kind == "V" else np.float64)
        for step, other in zip(self.way.steps, self.others, strict=True):
            values = _undo(step, values, other)
        return values


def _undo(step: Step, y: NDArray[Any], k: Float | None) -> NDArray[Any]:
    """The carried operand of one step, of its result and its other operand."""
    name = step.op.name.removeprefix("stablehlo.")
    if name == "transpose":
        return y.transpose(np.argsort(np.asarray(step.op["permutation"])))
    if name in ("convert", "reshape", "maximum"):
        return y.reshape(step.shape)
    if name == "negate" or k is None:
        return np.asarray(-y)
    other: NDArray[Any] = k.astype(y.dtype)
    if name == "subtract" and step.carried:
        return np.asarray(other - y)
    return _UNDOES[name](y, other)


_UNDOES: dict[str, Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]] = {
    "add": np.subtract,
    "subtract": np.add,
    "multiply": np.divide,
    "divide": np.multiply,
}


def ways(graph: Graph) -> dict[int, Way]:
    """The results that can be undone to sums, with the way of each."""
    found = {r: way_of(graph, r) for r in range(len(graph.results))}
    return {r: way for r, way in found.items() if way is not None}


def whole_sums(
    oracle: Oracle, result: int, way: Way, rng: Generator, *, sparse: bool = False
) -> WholeSums | None:
    """None where some sum might not be exact, or an epilogue might lose it.

    With `sparse` operands are those that `draw_whole` made so.
    """
    graph, op = oracle.graph, way.contraction
    dimension = longest_dimension(graph, op)
    tensors = [graph.types[v] for v in (*op.operands, *op.results)]
    if dimension is None or max(t.elements for t in tensors) > MOST_ELEMENTS:
        return None
    if not all(_some(oracle, v).is_exact for v in op.operands):
        return None
    operands = [
        as_multiplied(oracle.value(v, whole(graph.types[v].shape)), leaves_precision(op))
        for v in op.operands
    ]
    values = [x.value.astype(np.float64, copy=False) for x in operands]
    grid = _grid(operands)
    if grid is None:
        return None
    others = [_other(oracle, step) for step in way.steps]
    span = _span(values, terms_of(graph, op), grid, sparse=sparse)
    if not is_kept(graph, way, others, span):
        return None
    weights = _weights(rng, graph.types[op.results[0]].shape[dimension.of_result])
    expected = projected(graph, op, values, dimension, weights)
    known = tuple(None if x is None else x.value.astype(np.float64) for x in others)
    return WholeSums(result, way, known, dimension, weights, grid, expected)


def _some(oracle: Oracle, value: int) -> Bounded:
    """A corner of an operand: one that is computed with an error mostly has it there too."""
    return oracle.value(value, tuple((0, min(n, 2)) for n in oracle.graph.types[value].shape))


def _other(oracle: Oracle, step: Step) -> Bounded | None:
    if step.other is None:
        return None
    return oracle.value(step.other, whole(oracle.graph.types[step.other].shape))


def _grid(factors: Sequence[Bounded]) -> float | None:
    """A power of two that divides all products; None where they are not exact multiples of one."""
    found = 1.0
    for x in factors:
        step = quantum(x.value.astype(np.float64, copy=False)) if x.is_exact else None
        if step is None:
            return None
        found *= step
    return found


def _weights(rng: Generator, size: int) -> Float:
    sizes = rng.integers(1, LARGEST_WEIGHT + 1, size)
    return np.asarray(sizes * rng.choice((-1, 1), size), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Span:
    """Where values lie, and a number of which they are multiples."""

    low: float
    high: float
    grid: float
    rounds: bool = False
    """Whether they are so only up to rounding."""

    def fits(self, dtype: str) -> bool:
        """Whether a type holds all multiples of the grid that lie there."""
        if not is_float(dtype):
            return not self.rounds and self.grid >= 1 and self._lies_in_integers(dtype)
        precision = PRECISIONS[dtype]
        digits = min(precision.digits, MOST_DIGITS) - (ROUNDED_DIGITS if self.rounds else 0)
        largest = max(abs(self.low), abs(self.high))
        is_normal = largest <= precision.largest and self.grid >= precision.underflow
        return is_normal and largest <= self.grid * 2.0**digits

    def _lies_in_integers(self, dtype: str) -> bool:
        if is_unsigned(dtype) and self.low < 0:
            return False
        digits = min(8 * BYTES[dtype] - 1, MOST_DIGITS)
        return dtype != "i1" and max(abs(self.low), abs(self.high)) < self.grid * 2.0**digits


def _span(factors: Sequence[Float], terms: int, grid: float, *, sparse: bool) -> Span:
    """The range of sums of so many products.

    Of `sparse` factors, drawn independently, sums are far below `SPARE` times what
    they are on average.
    """
    largest = [max(float(x.max(initial=0.0)), -float(x.min(initial=0.0))) for x in factors]
    most = terms * prod(largest)
    if sparse and max(largest) <= 1.0:
        average = terms * prod(float(np.abs(x).mean()) if x.size else 0.0 for x in factors)
        most = min(most, SPARE * max(average, LEAST_AVERAGE))
    return Span(0.0 if all(x.min(initial=0.0) >= 0 for x in factors) else -most, most, grid)


def is_kept(graph: Graph, way: Way, others: Sequence[Bounded | None], sums: Span) -> bool:
    """Whether all sums of a range can be told from what the steps of a way make of them."""
    span = sums
    dtypes = [graph.types[step.op.results[0]].dtype for step in way.steps]
    if not sums.fits(graph.types[way.contraction.results[0]].dtype):
        return False
    for step, other, dtype in zip(way.steps[::-1], others[::-1], dtypes[::-1], strict=True):
        stepped = _stepped(step, other, span)
        if stepped is None or not stepped.fits(dtype):
            return False
        span = stepped
    return True


def _stepped(step: Step, other: Bounded | None, x: Span) -> Span | None:
    """The range behind one step; None where the step loses some sums."""
    name = step.op.name.removeprefix("stablehlo.")
    if name == "negate":
        return replace(x, low=-x.high, high=-x.low)
    if other is None:
        return x
    k = other.value.astype(np.float64)
    if not np.isfinite(k).all():
        return None
    if name == "maximum":
        return x if k.max(initial=-np.inf) <= x.low else None
    with np.errstate(all="ignore"):
        if not _is_close(other, x, relative=name in ("multiply", "divide")):
            return None
        if name in ("add", "subtract"):
            return _shifted(x, k, other.is_exact, name, step.carried)
        return _scaled(x, 1 / k if name == "divide" else k, other.is_exact)


def _is_close(other: Bounded, x: Span, *, relative: bool) -> bool:
    """Whether what an operand may be off by moves no value of a range by much of its grid."""
    if other.is_exact:
        return True
    largest = max(abs(x.low), abs(x.high))
    moved = other.bound / np.abs(other.value) * largest if relative else other.bound
    return bool((moved <= x.grid * MOST_MOVED).all())


def _shifted(x: Span, k: Float, is_exact: bool, name: str, carried: int) -> Span:
    if name == "subtract":
        k = k if carried else -k
        x = replace(x, low=-x.high, high=-x.low) if carried else x
    step = quantum(k) if is_exact else None
    low, high = x.low + float(k.min(initial=0.0)), x.high + float(k.max(initial=0.0))
    return Span(low, high, min(x.grid, step or x.grid), x.rounds or step is None)


def _scaled(x: Span, k: Float, is_exact: bool) -> Span | None:
    size = np.abs(k)
    if not size.size or not size.min() > 0 or not np.isfinite(size).all():
        return None
    powers = is_exact and bool((np.frexp(size)[0] == 0.5).all())
    ends = [a * float(b) for a in (x.low, x.high) for b in (k.min(), k.max())]
    return Span(min(ends), max(ends), x.grid * float(size.min()), x.rounds or not powers)


def draw_whole(
    graph: Graph, found: Iterable[Way], rng: Generator, period: int
) -> tuple[Array, ...]:
    """Integers of which the sums of a graph are exact in its types, and pass its epilogues.

    Where an epilogue has a maximum, none is below zero, and what is subtracted ahead of it is zero.
    Sums in narrow types have few terms that are not zero.
    """
    some = list(found)
    cut = any(s.op.name == "stablehlo.maximum" for way in some for s in way.steps)
    taken = {
        s.other for way in some for s in way.steps if s.op.name == "stablehlo.subtract" and cut
    }
    summed = _behind(graph, {v for way in some for v in way.contraction.operands})
    zeros = _behind(graph, {v for v in taken if v is not None}) - summed
    share = min(share_of(graph, way) for way in some)
    arrays = list[Array]()
    for value, tensor, domain in zip(
        graph.arguments, graph.argument_types, domains(graph), strict=True
    ):
        if value in zeros and not domain.positive and domain.below is None:
            arrays.append(np.zeros(tensor.shape, numpy_dtype(tensor.dtype)))
        elif value in summed:
            arrays.append(_integers(tensor, domain, rng, share, cut, period))
        else:
            arrays.append(_integers(tensor, replace(domain, positive=True), rng, 1.0, cut, period))
    return tuple(arrays)


def share_of(graph: Graph, way: Way) -> float:
    """The share of the operands that are not zero: 1 where all sums are exact."""
    values = (way.contraction.results[0], *(s.op.results[0] for s in way.steps))
    dtypes = [graph.types[v].dtype for v in values]
    digits = min(PRECISIONS[d].digits if is_float(d) else 8 * BYTES[d] - 1 for d in dtypes)
    terms = terms_of(graph, way.contraction)
    if digits > NARROW_DIGITS or terms == 0:
        return 1.0
    return sqrt(min(1.0, 2.0**digits / (2 * SPARE * terms)))


def _integers(
    tensor: TensorType, domain: Domain, rng: Generator, share: float, cut: bool, period: int
) -> Array:
    if is_large(tensor.shape, period):
        some = TensorType((period,), tensor.dtype)
        return repeated(_integers(some, domain, rng, share, cut, period), tensor.shape)
    dtype = numpy_dtype(tensor.dtype)
    if not has_kernels(tensor.dtype) or tensor.dtype == "i1" or domain.below is not None:
        return whole_numbers(tensor, domain, "integers", rng).astype(dtype)
    if domain.positive:
        return rng.integers(1, 3, tensor.shape).astype(dtype)
    largest = 1 if share < 1 else _LARGEST
    least = 0 if cut or is_unsigned(tensor.dtype) else -largest
    values = rng.integers(least, largest + 1, tensor.shape)
    if share < 1:
        values = np.where(values == 0, largest, values)
    return np.where(rng.random(tensor.shape) < share, values, 0).astype(dtype)


def _behind(graph: Graph, values: set[int]) -> set[int]:
    """Some values, and all that they are made of."""
    found = set(values)
    for op in reversed(graph.ops):
        if not found.isdisjoint(op.results):
            found |= {*op.operands, *(v for region in op.regions for _, v in region.captures)}
    return found

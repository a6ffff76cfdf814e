"""Elementwise operations of every type: one table from an operation's name to what it does."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from hlotune.hlo.graph import Graph, Op, numpy_dtype
from hlotune.hlo.oracle import floats, integers
from hlotune.hlo.oracle.bounded import (
    UNKNOWN,
    Bounded,
    Values,
    exact,
    in_pieces,
    rounded,
    settle,
)
from hlotune.hlo.oracle.request import Request, unsupported
from hlotune.schedules.dtypes import is_float

RELATIONS: dict[str, Callable[..., object]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def compare(op: Op, operands: tuple[Bounded, ...]) -> Bounded:
    a, b = operands
    relation = RELATIONS[cast(str, op["comparison_direction"])]
    if not is_float(a.dtype):
        return Bounded(cast(Values, relation(a.value, b.value)), a.bound + b.bound, "i1")
    if op.operands[0] == op.operands[1]:
        return _with_itself(relation, a)
    if _has(op, "compare_type") and op["compare_type"] == "TOTALORDER":
        a, b = (Bounded(_total_order(x), x.bound, x.dtype) for x in (a, b))
    return floats.compare(relation, a, b)


def _with_itself(relation: Callable[..., object], x: Bounded) -> Bounded:
    """A value compared with itself, as a search for NaN does: it hangs on no error."""
    value = cast(Values, relation(x.value, x.value))
    return Bounded(value, np.where(np.isfinite(x.bound), 0.0, UNKNOWN), "i1")


def _has(op: Op, name: str) -> bool:
    return any(key == name for key, _ in op.attributes)


def _total_order(x: Bounded) -> Values:
    """-nan < -inf < ... < -0 < 0 < ... < inf < nan, in numbers that compare so."""
    tiny = np.nextafter(0.0, 1.0)
    value = np.where((x.value == 0) & np.signbit(x.value), -tiny, x.value)
    value = np.where(np.isinf(value), np.copysign(np.finfo(np.float64).max, value), value)
    return np.where(np.isnan(value), np.copysign(np.inf, x.value), value)


def select(operands: tuple[Bounded, ...]) -> Bounded:
    """Where the predicate is unknown the branches must nearly agree, as those of a relu do."""
    predicate, yes, no = operands
    value = np.where(predicate.value, yes.value, no.value)
    bound = np.where(predicate.value, yes.bound, no.bound)
    if predicate.is_exact:
        return Bounded(value, bound, yes.dtype)
    jump: Values = np.full(value.shape, UNKNOWN)
    if is_float(yes.dtype):
        apart = np.abs(yes.value - no.value)
        error = np.maximum(yes.bound, no.bound)
        jump = np.where(apart <= 16 * error, apart + error, UNKNOWN)
    return Bounded(value, np.where(predicate.bound > 0, jump, bound), yes.dtype)


def convert(x: Bounded, dtype: str) -> Bounded:
    if is_float(dtype):
        if is_float(x.dtype):
            return settle(x.value, x.bound, dtype, convert=True)
        return Bounded(rounded(x.value.astype(np.float64), dtype), x.bound, dtype)
    if not is_float(x.dtype):
        target = numpy_dtype(dtype)
        return Bounded(x.value != 0 if dtype == "i1" else x.value.astype(target), x.bound, dtype)
    if dtype == "i1":
        return floats.compare(np.not_equal, x, exact(np.zeros(()), x.dtype))
    return _truncated(x, dtype)


def _truncated(x: Bounded, dtype: str) -> Bounded:
    """Rounds towards zero and saturates; outside of the type any answer is right: unknown."""
    limits = np.iinfo(cast("np.dtype[np.integer]", numpy_dtype(dtype)))
    whole = np.trunc(x.value)
    inside = (
        (whole >= limits.min) & (whole <= limits.max) & (whole < 2.0**63 * (1 + (limits.min == 0)))
    )
    jumps = (x.bound > 0) & (np.trunc(x.value - x.bound) != np.trunc(x.value + x.bound))
    value = np.where(inside, whole, 0.0).astype(numpy_dtype(dtype))
    value = np.where(
        inside, value, np.where(whole > 0, limits.max, np.where(whole < 0, limits.min, 0))
    )
    return Bounded(value.astype(numpy_dtype(dtype)), np.where(jumps | ~inside, UNKNOWN, 0.0), dtype)


def apply(op: Op, operands: tuple[Bounded, ...], dtype: str) -> Bounded:
    """One elementwise operation with a result of type `dtype`; shapes broadcast."""
    return in_pieces(lambda *x: _applied(op, x, dtype), *operands)


def _applied(op: Op, operands: tuple[Bounded, ...], dtype: str) -> Bounded:
    name = op.name.partition(".")[2]
    if name == "compare":
        return compare(op, operands)
    if name == "select":
        return select(operands)
    if name == "convert":
        return convert(operands[0], dtype)
    if name == "reduce_precision":
        return floats.reduce_precision(
            operands[0], cast(int, op["exponent_bits"]), cast(int, op["mantissa_bits"])
        )
    if is_float(operands[0].dtype):
        return floats.FLOATS[name](*operands)
    return integers.apply(name, operands, dtype)


NAMED = {"compare", "select", "convert", "reduce_precision"}
DIALECTS = ("stablehlo", "chlo")


def is_elementwise(op: Op) -> bool:
    dialect, _, name = op.name.partition(".")
    return dialect in DIALECTS and (
        name in NAMED or name in floats.FLOATS or name in integers.INTEGERS
    )


def rule(request: Request) -> tuple[Bounded, ...]:
    """Asks every operand for the box of the result; scalars (of select, clamp) for themselves."""
    operands = []
    for i in range(len(request.op.operands)):
        scalar = not request.type(i).shape
        operands.append(request.operand(i, () if scalar else request.box))
    kinds = floats.FLOATS if is_float(operands[-1].dtype) else integers.INTEGERS
    name = request.op.name.partition(".")[2]
    if name not in NAMED and name not in kinds:
        kind = operands[-1].dtype
        raise unsupported(f"an operation that the oracle knows for {kind}", request.op.name)
    result = apply(request.op, tuple(operands), request.result.dtype)
    return (result.move(lambda x: np.broadcast_to(x, request.shape)),)


def fold(
    graph: Graph, arguments: Sequence[Bounded], captured: Mapping[int, Bounded]
) -> tuple[Bounded, ...]:
    """Evaluates a region on scalars for arrays of them: the body of a reduce, a sort, a map.

    Raises:
        UnsupportedKernel: the region holds what is no elementwise operation.
    """
    held = dict(zip(graph.arguments, arguments, strict=True))
    held |= {here: captured[there] for here, there in graph.captures}
    for op in graph.ops:
        operands = tuple(held[v] for v in op.operands)
        if op.name == "stablehlo.constant":
            literal = op["value"]
            held[op.results[0]] = exact(literal.array(), literal.type.dtype)  # type: ignore[union-attr]
        elif op.name in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
            held[op.results[0]] = operands[0]
        elif is_elementwise(op):
            held[op.results[0]] = apply(op, operands, graph.types[op.results[0]].dtype)
        else:
            raise unsupported("elementwise operations on scalars in a region", op.name)
    return tuple(held[v] for v in graph.results)

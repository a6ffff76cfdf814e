"""What values of a program always are, where that is evident.

Kernels have a tensor whose elements are all one known number for nothing.  JAX puts what does not
vary in a loop ahead of it, broadcasts of numbers among it: a kernel of the loop that took them as
arguments would read whole tensors of equal elements.  Small tensors of integers are indices, which
say where a slice or an update stands.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Protocol, Self

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op, TensorType, numpy_dtype

SAME = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.reshape"})
OPERATIONS: dict[str, Callable[..., np.generic]] = {
    "stablehlo.add": np.add,
    "stablehlo.subtract": np.subtract,
    "stablehlo.multiply": np.multiply,
    "stablehlo.convert": np.positive,
    "stablehlo.divide": np.true_divide,
    "stablehlo.negate": np.negative,
}
"""Operations that round once, and in one way everywhere; to floats."""
COMPARED: dict[str, Callable[..., np.generic]] = {
    "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal,
    "NE": np.not_equal,
}  # fmt: skip
FLOATS = frozenset({"f32", "f64"})
NUMBERS = FLOATS | {"i8", "i16", "i32", "i64"}
FEW = 64
"""Elements of the largest tensor of integers that is looked at."""


class Values(Protocol):
    """The values of a function, or of a region in it: a `Scope` of `hlo/sites/scopes.py`."""

    @property
    def graph(self) -> Graph: ...

    @property
    def numbers(self) -> dict[int, Literal | None]:
        """What was found of values: numbers that all their elements are."""
        ...

    def origin(self, value: int) -> tuple[Self, int]:
        """Where a value comes from, through captures and what a loop carries along unchanged."""
        ...

    def producer(self, value: int) -> Op | None:
        """The operation that defines a value; None for arguments and captures."""
        ...


def literal_of(op: Op | None) -> Literal | None:
    """The value of a constant; None of other operations, and where the value was elided."""
    literal = op["value"] if op is not None and op.name == "stablehlo.constant" else None
    return literal if isinstance(literal, Literal) else None


def integers(graph: Graph, value: int, makers: Mapping[int, Op]) -> tuple[int, ...] | None:
    """The elements of a small constant, in order, or of what is put together of some."""
    shape, op = graph.types[value].shape, makers.get(value)
    if op is None or prod(shape) > FEW or graph.types[value].dtype[0] not in "iu":
        return None
    if (literal := literal_of(op)) is not None:
        return tuple(int(x) for x in np.broadcast_to(literal.array(), shape).flat)
    parts = [integers(graph, v, makers) for v in op.operands]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if op.name == "stablehlo.concatenate" and len(shape) == 1:
        return tuple(x for part in known for x in part)
    if op.name == "stablehlo.reshape" or (
        op.name == "stablehlo.broadcast_in_dim" and len(known[0]) == prod(shape)
    ):
        return known[0]
    if op.name == "stablehlo.broadcast_in_dim" and len(known[0]) == 1:
        return known[0] * prod(shape)
    return None


def splat_of(scope: Values, value: int) -> Literal | None:
    """The constant that a value is, with all elements equal; None where that is not evident."""
    kind = scope.graph.types[value]
    literal = _number(scope, value)
    return literal and Literal(kind, literal.data, splat=True)


def _number(scope: Values, value: int) -> Literal | None:
    """One element of such a value; each is computed once."""
    scope, value = scope.origin(value)
    if value not in scope.numbers:
        op = scope.producer(value)
        scope.numbers[value] = None if op is None else _result(scope, op)
    return scope.numbers[value]


def _result(scope: Values, op: Op) -> Literal | None:
    """One element of what an operation gives."""
    if (literal := literal_of(op)) is not None:
        return literal if literal.splat or literal.type.elements == 1 else None
    if op.name in SAME:
        return _number(scope, op.operands[0])
    return _computed(scope, op)


def _computed(scope: Values, op: Op) -> Literal | None:
    """One element of what an operation computes from such values."""
    compute, result = OPERATIONS.get(op.name), scope.graph.types[op.results[0]].dtype
    if op.name == "stablehlo.compare" and op["compare_type"] != "TOTALORDER":
        compute = COMPARED[str(op["comparison_direction"])]
    elif result not in FLOATS:
        return None
    if compute is None or not {scope.graph.types[v].dtype for v in op.operands} <= NUMBERS:
        return None
    operands = list[np.generic]()
    for value in op.operands:
        known = _number(scope, value)
        if known is None:
            return None
        operands.append(np.frombuffer(known.data, numpy_dtype(known.type.dtype))[0])
    with np.errstate(all="ignore"):
        found = np.asarray(compute(*operands)).astype(numpy_dtype(result))
    return Literal(TensorType((), result), found.tobytes(), splat=False)

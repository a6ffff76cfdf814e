"""Values of a region whose elements are all one number that is known: kernels have it for nothing.

JAX puts what does not vary in a loop ahead of it, broadcasts of numbers among it.  A kernel of the
loop that took them as arguments would read whole tensors of equal elements.
"""

from collections.abc import Callable

import numpy as np

from hlotune.hlo.graph import Literal, Op, TensorType, numpy_dtype
from hlotune.hlo.sites.scopes import Scope

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


def splat_of(scope: Scope, value: int) -> Literal | None:
    """The constant that a value is, with all elements equal; None where that is not evident."""
    kind = scope.graph.types[value]
    literal = _number(scope, value)
    return literal and Literal(kind, literal.data, splat=True)


def _number(scope: Scope, value: int) -> Literal | None:
    """One element of such a value; each is computed once."""
    scope, value = scope.origin(value)
    if value not in scope.numbers:
        op = scope.producer(value)
        scope.numbers[value] = None if op is None else _result(scope, op)
    return scope.numbers[value]


def _result(scope: Scope, op: Op) -> Literal | None:
    """One element of what an operation gives."""
    if op.name == "stablehlo.constant":
        literal = op["value"]
        one = isinstance(literal, Literal) and (literal.splat or literal.type.elements == 1)
        return literal if one and isinstance(literal, Literal) else None
    if op.name in SAME:
        return _number(scope, op.operands[0])
    return _computed(scope, op)


def _computed(scope: Scope, op: Op) -> Literal | None:
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

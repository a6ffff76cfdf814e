"""Sizes of symbolic shapes, and arithmetic with them: numbers while a graph is traced."""

import operator
from typing import Any

from hlotune.hlo.frontends.pytorch.types import Value, rows

_BINARY = (
    "add", "sub", "mul", "floordiv", "truediv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge",
    "and_", "or_",
)  # fmt: skip


def _size(self: Value, dim: int) -> int:
    return int(self.shape[dim])


def _count(self: Value) -> int:
    return int(self.size)


def _nothing(*_: Any, **__: Any) -> None:
    """Does nothing: sizes are known numbers in their ranges, so assertions about them hold."""


def _binary(name: str) -> Any:
    compute = getattr(operator, name)
    return lambda a, b: compute(a, b)


def _negated(a: int) -> int:
    return -a


OPERATORS = rows(neg=_negated, **{name: _binary(name) for name in _BINARY})
"""Rules for functions of Python's `operator` module, which graphs name like `_operator.mul`."""
ROWS = rows(
    sym_size=_size, sym_numel=_count, _assert_scalar=_nothing, _assert_async=_nothing,
    _assert_tensor_metadata=_nothing,
    sym_constrain_range=_nothing, sym_constrain_range_for_size=_nothing,
)  # fmt: skip

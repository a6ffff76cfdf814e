"""Values of rules, and the element types of their results, as PyTorch promotes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Value = Any
"""An array, or a number, a list or a text that stands in the graph."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table of operations."""

    rule: Callable[..., Any]
    """Takes inputs by the names that ATen gives them; gives a value, or a tuple of them."""
    is_view: bool = False
    """Whether the result may lie in the memory of the first input."""


class Refusal(Exception):
    """What a rule does not compute, and what to do."""


def rows(is_view: bool = False, **rules: Callable[..., Any]) -> dict[str, Operation]:
    return {name: Operation(rule, is_view) for name, rule in rules.items()}


def is_tensor(value: Value) -> bool:
    return isinstance(value, jax.Array | np.ndarray)


def dtype_of_scalar(value: Value) -> Any:
    if isinstance(value, bool):
        return np.dtype(np.bool_)
    if isinstance(value, complex):
        return np.dtype(np.complex64)
    return np.dtype(np.int64) if isinstance(value, int) else np.dtype(np.float32)


def common_dtype(values: Iterable[Value]) -> Any:
    """The type that operands are converted to.

    Tensors of no dimensions, and numbers, change it only where their category, of bool, integers,
    floats and complex numbers, is a higher one. Complex numbers are then as wide as floats were.
    """
    values = list(values)
    tensors = [v for v in values if is_tensor(v)]
    groups = (
        [v.dtype for v in tensors if v.ndim],
        [v.dtype for v in tensors if not v.ndim],
        [dtype_of_scalar(v) for v in values if not is_tensor(v)],
    )
    found: Any = None
    for group in groups:
        for dtype in group[:1]:
            for other in group[1:]:
                dtype = jnp.promote_types(dtype, other)
            if found is None or _category(dtype) > _category(found):
                found = dtype if found is None else _raised(found, dtype)
    return found


def _raised(dtype: Any, other: Any) -> Any:
    """A type of a higher category, for values that had a type of a lower one."""
    if _category(other) < 3 or not is_float(dtype):
        return other
    if dtype == np.float16:
        raise Refusal("complex numbers of f16: convert the floats to f32 first")
    return np.dtype(np.complex128 if dtype == np.float64 else np.complex64)


def _category(dtype: Any) -> int:
    if dtype == np.bool_:
        return 0
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return 3
    return 2 if jnp.issubdtype(dtype, jnp.floating) else 1


def is_float(dtype: Any) -> bool:
    """Whether it is a type of floats, or of complex numbers, which are pairs of them."""
    return _category(dtype) >= 2


def promoted(*values: Value) -> tuple[jax.Array, ...]:
    """Operands in their common type."""
    dtype = common_dtype(values)
    return tuple(jnp.asarray(v, dtype) for v in values)


def floating(value: Value) -> jax.Array:
    """Integers as f32, as functions of real numbers take them."""
    array = jnp.asarray(value)
    return array if is_float(array.dtype) else array.astype(jnp.float32)

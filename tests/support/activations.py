"""Activations as users of JAX write them, and as they are defined.

The definitions are NumPy's, and share nothing with the road from a program to a kernel.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from numpy.typing import NDArray

Array = NDArray[Any]

IN_JAX: dict[str, Callable[..., Any]] = {
    "gelu": lambda y: jax.nn.gelu(y, approximate=False),
    "gelu by tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu6": jax.nn.relu6,
}
SMOOTH = frozenset(IN_JAX) - {"relu6"}
"""Those that round."""


def gelu(x: Array, kind: Any = np.float64) -> Array:
    """By the complement of the error function; `kind` is the type that holds the constants."""
    value: Array = x / 2 * scipy.special.erfc(-x * _held(np.sqrt(0.5), kind))
    return value


def gelu_by_tanh(x: Array, kind: Any = np.float64) -> Array:
    scale, cube = _held(np.sqrt(2 / np.pi), kind), _held(0.044715, kind)
    value: Array = x / 2 * (1 + np.tanh(scale * (x + cube * x**3)))
    return value


def silu(x: Array) -> Array:
    value: Array = x * scipy.special.expit(x)
    return value


def relu6(x: Array) -> Array:
    """In the type of its argument."""
    value: Array = np.minimum(np.maximum(x, np.zeros((), x.dtype)), np.full((), 6, x.dtype))
    return value


DEFINED: dict[str, Callable[..., Any]] = {
    "gelu": gelu,
    "gelu by tanh": gelu_by_tanh,
    "silu": silu,
    "sigmoid": scipy.special.expit,
    "tanh": np.tanh,
    "relu6": relu6,
}


def _held(value: float, kind: Any) -> float:
    return float(np.asarray(value).astype(kind))

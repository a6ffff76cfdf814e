"""Functions without a contraction, as JAX programs write them, by the axis that they work along.

Each takes its arrays in the order of `Rows.shapes`; nothing is an argument beside them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.operations import Array, Shape

Function = Callable[..., Any]


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    apart = x - x.mean(-1, keepdims=True)
    return apart * jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + 1e-5) * scale + bias


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def group_norm(x: jax.Array) -> jax.Array:
    """Group norm of `(batch, positions, groups, channels of a group)`."""
    mean = x.mean((1, 3), keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var((1, 3), keepdims=True) + 1e-5)


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    """Batch norm in training, with the mean and the variance of all but the last axis."""
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    return (x - mean) * (jax.lax.rsqrt(variance + 1e-3) * scale) + bias


def cross_entropy(x: jax.Array, target: jax.Array) -> jax.Array:
    """Cross entropy of logits against probabilities, one loss a row."""
    return -(jax.nn.log_softmax(x) * target).sum(-1)


def backward(function: Function) -> Function:
    """The gradient of a function's first argument for that of its result, which comes last."""

    def gradient(x: jax.Array, *values: jax.Array) -> Any:
        *others, g = values
        return jax.vjp(lambda x: function(x, *others), x)[1](g)[0]

    return gradient


def adam(
    p: jax.Array, g: jax.Array, m: jax.Array, v: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


FUNCTIONS: dict[str, Function] = {
    "bias_gelu": lambda x, bias: jax.nn.gelu(x + bias, approximate=False),
    "bias_tanh": lambda x, bias: jnp.tanh(x + bias),
    "residual_relu": lambda x, y: jnp.maximum(x + y, 0),
    "turned_sum": lambda x, y: x.T + y,
    "turned_channels": lambda x, bias: jnp.maximum(x.transpose(0, 2, 3, 1) + bias, 0),
    "gated": lambda x, gate: x * jax.nn.silu(gate),
    "outer": lambda x, y: jnp.exp(-jnp.abs(x[:, None] - y[None])),
    "adam": adam,
    "sum_last": lambda x: x.sum(-1),
    "sum_first": lambda x: x.sum(0),
    "sum_middle": lambda x: x.sum(1),
    "squares_all": lambda x: (x * x).sum(),
    "max_last": lambda x: x.max(-1),
    "argmax_last": lambda x: jnp.argmax(x, -1),
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "cross_entropy": cross_entropy,
    "softmax_backward": backward(jax.nn.softmax),
    "layer_norm_backward": backward(layer_norm),
    "rms_norm_backward": backward(rms_norm),
    "gelu_backward": backward(lambda x: jax.nn.gelu(x, approximate=False)),
    "cross_entropy_backward": backward(cross_entropy),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """One of `FUNCTIONS` with the shapes of its arrays, all f32."""

    name: str
    shapes: tuple[Shape, ...]
    constant: bool = False
    parameters: int = 0

    def inputs(self, seed: int = 0) -> tuple[Array, ...]:
        """Random values of all arguments."""
        rng = np.random.default_rng(seed)
        return tuple(rng.normal(size=shape).astype(np.float32) for shape in self.shapes)

    def __call__(self, *values: Array) -> Any:
        return FUNCTIONS[self.name](*values)

    @property
    def elements(self) -> int:
        """The elements of the largest array."""
        return max(prod(shape) for shape in self.shapes)

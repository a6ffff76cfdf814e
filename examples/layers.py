"""Layers that the examples share: plain functions of JAX in f32, and seeded random weights.

A network is a function of `(parameters, arguments)`; a factory binds the weights with `frozen`, as
a network is served, or gives them as arguments, as one that is trained has them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune import freeze

Weights = dict[str, Any]
"""Arrays by name, possibly in dictionaries of their own."""
Factory = tuple[Callable[..., Any], tuple[Any, ...]]
"""What `tune` asks for: a function, and arguments to call it with."""

LAYOUTS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}
EPSILON = 1e-5
PERIOD = 1_048_583
"""A prime, so that rows of a repeated array differ."""


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(rng: np.random.Generator, shape: Sequence[int], deviation: float = 1.0) -> np.ndarray:
    """Normally distributed values.  In an array of more than a million elements the first million
    are repeated, which takes a tenth of the time.
    """
    period = rng.standard_normal(min(math.prod(shape), PERIOD), np.float32)
    values = np.resize(period * np.float32(deviation), shape)
    values.flags.writeable = False  # so that `freeze` need not copy it
    return values


def image(batch: int, size: int, channels: int = 3, layout: str = "NHWC") -> np.ndarray:
    shape = (batch, size, size, channels) if layout == "NHWC" else (batch, channels, size, size)
    return normal(generator(1), shape)


def frozen(function: Callable[..., Any], weights: Weights, *arguments: Any) -> Factory:
    """The function with its weights as constants, as a network is served."""
    return freeze(function, weights), arguments


def dense_weights(rng: np.random.Generator, inputs: int, outputs: int) -> Weights:
    weights = normal(rng, (inputs, outputs), np.sqrt(2 / inputs))
    return {"weights": weights, "bias": normal(rng, (outputs,), 0.1)}


def dense(layer: Weights, x: jax.Array) -> jax.Array:
    y: jax.Array = x @ layer["weights"] + layer["bias"]
    return y


def convolution_weights(
    rng: np.random.Generator,
    size: int,
    inputs: int,
    outputs: int,
    layout: str = "NHWC",
    groups: int = 1,
) -> Weights:
    """A square window, scaled after He; `inputs` are those of all groups."""
    of_group = inputs // groups
    shape = (size, size, of_group, outputs)
    shape = shape if layout == "NHWC" else (outputs, of_group, size, size)
    weights = normal(rng, shape, np.sqrt(2 / (size * size * of_group)))
    return {"weights": weights, "bias": normal(rng, (outputs,), 0.1)}


def convolve(
    layer: Weights,
    x: jax.Array,
    stride: int = 1,
    *,
    layout: str = "NHWC",
    groups: int = 1,
    padding: int | None = None,
) -> jax.Array:
    """Padded, unless something else is said, so that a stride of 1 keeps the image's size."""
    weights = layer["weights"]
    border = weights.shape[0 if layout == "NHWC" else 2] // 2 if padding is None else padding
    y = lax.conv_general_dilated(
        x,
        weights,
        (stride, stride),
        [(border, border)] * 2,
        dimension_numbers=LAYOUTS[layout],
        feature_group_count=groups,
    )
    return y + along_channels(layer["bias"], layout)


def along_channels(vector: jax.Array, layout: str) -> jax.Array:
    return vector if layout == "NHWC" else vector[:, None, None]


def norm_weights(rng: np.random.Generator, width: int) -> Weights:
    """Running statistics near those of He's weights, and a learned scale and shift."""
    return {
        "mean": normal(rng, (width,), 0.1),
        "variance": rng.uniform(1.6, 2.4, width).astype(np.float32),
        "gamma": rng.uniform(0.6, 1.0, width).astype(np.float32),
        "beta": normal(rng, (width,), 0.1),
    }


def batch_norm(layer: Weights, x: jax.Array, layout: str = "NHWC") -> jax.Array:
    """Batch norm as at inference, from running statistics."""
    scale = lax.rsqrt(layer["variance"] + EPSILON) * layer["gamma"]
    shift = layer["beta"] - layer["mean"] * scale
    return x * along_channels(scale, layout) + along_channels(shift, layout)


def layer_norm_weights(width: int) -> Weights:
    return {"gamma": np.ones(width, np.float32), "beta": np.zeros(width, np.float32)}


def layer_norm(layer: Weights, x: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    y: jax.Array = (x - mean) * lax.rsqrt(variance + EPSILON) * layer["gamma"] + layer["beta"]
    return y


def relu(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, 0)


def max_pool(
    x: jax.Array, size: int = 2, stride: int = 2, border: int = 0, layout: str = "NHWC"
) -> jax.Array:
    window, steps, pads = _over_image(size, stride, border, layout)
    y: jax.Array = lax.reduce_window(x, -jnp.inf, lax.max, window, steps, pads)
    return y


def _over_image(
    size: int, stride: int, border: int, layout: str
) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    """Window, strides and padding of the four axes."""
    spatial = [axis in "HW" for axis in layout]
    return (
        tuple(size if s else 1 for s in spatial),
        tuple(stride if s else 1 for s in spatial),
        [(border, border) if s else (0, 0) for s in spatial],
    )


def over_positions(x: jax.Array, layout: str = "NHWC") -> jax.Array:
    """The mean of each channel over an image."""
    return x.mean((1, 2) if layout == "NHWC" else (2, 3))

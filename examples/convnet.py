"""Two small convolutions and a dense layer, batch 1: all that a convolutional network has, tiny.

tune run examples/convnet.py:model --trials 64
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Params = dict[str, jax.Array]


def forward(params: Params, image: jax.Array) -> jax.Array:
    """(1, 16, 16, 8) to (1, 10) logits."""
    x = _convolve(image, params["first"], params["first_bias"], stride=1)
    x = _convolve(x, params["second"], params["second_bias"], stride=2)
    return x.reshape(1, -1) @ params["dense"] + params["dense_bias"]


def _convolve(x: jax.Array, weights: jax.Array, bias: jax.Array, stride: int) -> jax.Array:
    y = lax.conv_general_dilated(
        x, weights, (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.maximum(y + bias, 0)


def model() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """What `tune` asks for: the function, and arguments to call it with."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        fan_in = np.prod(shape[:-1])
        return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)

    params = {
        "first": normal(3, 3, 8, 16),
        "first_bias": np.full(16, 0.1, np.float32),
        "second": normal(3, 3, 16, 32),
        "second_bias": np.full(32, 0.1, np.float32),
        "dense": normal(8 * 8 * 32, 10),
        "dense_bias": np.zeros(10, np.float32),
    }
    return forward, (params, rng.normal(size=(1, 16, 16, 8)).astype(np.float32))

"""The generator of DCGAN: 100 numbers to an image of 64 x 64, by transposed convolutions; f32.

tune run examples/dcgan.py:model --budget 2m
"""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

from examples.layers import (
    Factory,
    Weights,
    batch_norm,
    convolution_weights,
    dense,
    dense_weights,
    frozen,
    generator,
    norm_weights,
    normal,
    relu,
)

WIDTHS, NOISE, FIRST = (1024, 512, 256, 128, 3), 100, 4


def forward(weights: Weights, noise: jax.Array) -> jax.Array:
    """(batch, 100) to (batch, 64, 64, 3) between -1 and 1."""
    layers = weights["layers"]
    x = dense(weights["first"], noise).reshape(noise.shape[0], FIRST, FIRST, -1)
    x = relu(batch_norm(weights["norm"], x))
    for n, layer in enumerate(layers):
        x = lax.conv_transpose(
            x, layer["conv"]["weights"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x + layer["conv"]["bias"]
        x = relu(batch_norm(layer["norm"], x)) if n + 1 < len(layers) else jnp.tanh(x)
    return x


def parameters(narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng = generator()
    widths = [max(3, width // narrower) for width in WIDTHS]
    layers = [
        {"conv": convolution_weights(rng, 5, a, b), "norm": norm_weights(rng, b)}
        for a, b in itertools.pairwise(widths)
    ]
    first = dense_weights(rng, NOISE, FIRST * FIRST * widths[0])
    return {"first": first, "norm": norm_weights(rng, widths[0]), "layers": layers}


def model(batch: int = 8, narrower: int = 1) -> Factory:
    return frozen(forward, parameters(narrower), normal(generator(1), (batch, NOISE)))


def small() -> Factory:
    """For tests."""
    return model(1, 64)

"""SqueezeNet 1.1 for one 224 x 224 image: NHWC, f32.

tune run examples/squeezenet.py:model --budget 2m
"""

import jax
import jax.numpy as jnp

from examples.layers import (
    Factory,
    Weights,
    convolution_weights,
    convolve,
    frozen,
    generator,
    image,
    max_pool,
    over_positions,
    relu,
)

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
"""Channels of the squeeze, and of each half of what it expands to."""
POOLED = (0, 2, 4)
"""Fire modules in front of which the image is pooled."""
CLASSES = 1000


def forward(weights: Weights, x: jax.Array) -> jax.Array:
    """(1, size, size, 3) to (1, 1000) logits."""
    x = relu(convolve(weights["stem"], x, 2, padding=0))
    for n in range(len(FIRES)):
        x = max_pool(x, 3) if n in POOLED else x
        fire = weights[f"fire{n}"]
        x = relu(convolve(fire["squeeze"], x))
        x = jnp.concatenate([relu(convolve(fire[k], x)) for k in ("one", "three")], -1)
    return over_positions(relu(convolve(weights["classes"], x)))


def parameters(narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng, before = generator(), 64 // narrower
    weights: Weights = {"stem": convolution_weights(rng, 3, 3, before)}
    for n, (squeeze, expand) in enumerate(FIRES):
        inside, half = squeeze // narrower, expand // narrower
        weights[f"fire{n}"] = {
            "squeeze": convolution_weights(rng, 1, before, inside),
            "one": convolution_weights(rng, 1, inside, half),
            "three": convolution_weights(rng, 3, inside, half),
        }
        before = 2 * half
    weights["classes"] = convolution_weights(rng, 1, before, CLASSES)
    return weights


def model() -> Factory:
    return frozen(forward, parameters(), image(1, 224))


def small() -> Factory:
    """For tests."""
    return frozen(forward, parameters(8), image(1, 64))

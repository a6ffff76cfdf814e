"""A U-Net for an image of 128 x 128: four levels down and up again, NHWC, f32.

tune run examples/unet.py:model --budget 2m
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
    relu,
)

WIDTHS, CLASSES = (32, 64, 128, 256), 2


def forward(weights: Weights, x: jax.Array) -> jax.Array:
    """(1, size, size, 3) to (1, size, size, 2) logits."""
    skipped = list[jax.Array]()
    for pair in weights["down"][:-1]:
        x = _twice(pair, x)
        skipped.append(x)
        x = max_pool(x)
    x = _twice(weights["down"][-1], x)
    for pair in weights["up"]:
        larger = jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)
        x = _twice(pair, jnp.concatenate([skipped.pop(), larger], -1))
    return convolve(weights["classes"], x)


def _twice(pair: list[Weights], x: jax.Array) -> jax.Array:
    for layer in pair:
        x = relu(convolve(layer, x))
    return x


def parameters(narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng = generator()
    widths = [width // narrower for width in WIDTHS]

    def pair(inputs: int, outputs: int) -> list[Weights]:
        return [convolution_weights(rng, 3, n, outputs) for n in (inputs, outputs)]

    down = [pair(a, b) for a, b in zip([3, *widths], widths, strict=False)]
    up = [pair(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)]
    return {"down": down, "up": up, "classes": convolution_weights(rng, 1, widths[0], CLASSES)}


def model(size: int = 128, narrower: int = 1) -> Factory:
    return frozen(forward, parameters(narrower), image(1, size))


def small() -> Factory:
    """For tests."""
    return model(16, 8)

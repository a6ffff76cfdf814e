"""VGG19 for 224 x 224 images, NHWC, f32: 575 MB of weights, 19.6 GFLOP an image.

tune run examples/vgg19.py:model --budget 60s          # one image, weights as constants
tune run examples/vgg19.py:batch_10 --budget 2m
tune run examples/vgg19.py:gradient --budget 2m        # of the loss, weights as arguments
"""

import jax
import jax.numpy as jnp
import numpy as np

from examples.layers import (
    Factory,
    Weights,
    convolution_weights,
    convolve,
    dense,
    dense_weights,
    frozen,
    generator,
    image,
    max_pool,
    relu,
)

BLOCKS = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Channels and convolutions of each block; a pool of 2 x 2 follows each."""
HIDDEN, CLASSES, SIZE = 4096, 1000, 224


def forward(weights: Weights, x: jax.Array) -> jax.Array:
    """(batch, size, size, 3) to (batch, 1000) logits."""
    for block, (_, count) in enumerate(BLOCKS):
        for layer in range(count):
            x = relu(convolve(weights[f"{block}.{layer}"], x))
        x = max_pool(x)
    x = x.reshape(x.shape[0], -1)
    x = relu(dense(weights["first"], x))
    x = relu(dense(weights["second"], x))
    return dense(weights["last"], x)


def loss(weights: Weights, x: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross entropy of (batch,) labels."""
    logits = jax.nn.log_softmax(forward(weights, x))
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


def parameters(size: int = SIZE, hidden: int = HIDDEN, narrower: int = 1) -> Weights:
    """Channels are divided by `narrower`, for tests."""
    rng, weights, before = generator(), Weights(), 3
    for block, (width, count) in enumerate(BLOCKS):
        for layer in range(count):
            weights[f"{block}.{layer}"] = convolution_weights(rng, 3, before, width // narrower)
            before = width // narrower
    weights["first"] = dense_weights(rng, (size // 32) ** 2 * before, hidden)
    weights["second"] = dense_weights(rng, hidden, hidden)
    weights["last"] = dense_weights(rng, hidden, CLASSES)
    return weights


def model(batch: int = 1) -> Factory:
    return frozen(forward, parameters(), image(batch, SIZE))


def batch_10() -> Factory:
    return model(10)


def batch_100() -> Factory:
    return model(100)


def gradient(batch: int = 1) -> Factory:
    labels = np.arange(batch, dtype=np.int32) % CLASSES
    return jax.grad(loss), (parameters(), image(batch, SIZE), labels)


def gradient_10() -> Factory:
    return gradient(10)


def small() -> Factory:
    """For tests: images of 32, an eighth of the channels."""
    return frozen(forward, parameters(32, 64, 8), image(1, 32))

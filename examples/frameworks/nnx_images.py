"""A network of flax.nnx; its weights are constants of the program.

tune run examples/frameworks/nnx_images.py:model --budget 60s
"""

import jax
import numpy as np
from flax import nnx


class Network(nnx.Module):
    """(8, 16, 16, 3) images to (8, 10) probabilities."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.convolution = nnx.Conv(3, 16, (3, 3), rngs=rngs)
        self.normalization = nnx.BatchNorm(16, use_running_average=True, rngs=rngs)
        self.classes = nnx.Linear(16 * 8 * 8, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = self.normalization(nnx.relu(self.convolution(images)))
        hidden = nnx.max_pool(hidden, (2, 2), (2, 2))
        probabilities: jax.Array = nnx.softmax(self.classes(hidden.reshape(len(hidden), -1)))
        return probabilities


def model() -> tuple[Network, tuple[np.ndarray, ...]]:
    """A module of nnx is itself a function."""
    images = np.random.default_rng(0).standard_normal((8, 16, 16, 3), np.float32)
    return Network(nnx.Rngs(0)), (images,)

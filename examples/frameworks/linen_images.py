"""A network of flax.linen; its weights are arguments of the program.

tune run examples/frameworks/linen_images.py:model --budget 60s
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn


class Network(nn.Module):
    """(8, 16, 16, 3) images to (8, 10) probabilities."""

    def setup(self) -> None:
        self.convolution = nn.Conv(16, (3, 3))
        self.normalization = nn.BatchNorm(use_running_average=True)
        self.classes = nn.Dense(10)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = self.normalization(nn.relu(self.convolution(images)))
        hidden = nn.max_pool(hidden, (2, 2), (2, 2))
        probabilities: jax.Array = nn.softmax(self.classes(hidden.reshape(len(hidden), -1)))
        return probabilities


def model() -> tuple[Callable[..., jax.Array], tuple[Any, ...]]:
    """The method `apply`, with variables that `init` makes."""
    network = Network()
    images = np.random.default_rng(0).standard_normal((8, 16, 16, 3), np.float32)
    return network.apply, (network.init(jax.random.key(0), images), images)

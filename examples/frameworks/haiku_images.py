"""A network of haiku; its weights and its state are arguments of the program.

tune run examples/frameworks/haiku_images.py:model --budget 60s
"""

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import numpy as np


def network(images: jax.Array, is_training: bool = False) -> jax.Array:
    """(8, 16, 16, 3) images to (8, 10) probabilities."""
    hidden = jax.nn.relu(hk.Conv2D(16, 3)(images))
    hidden = hk.BatchNorm(True, True, 0.9)(hidden, is_training)
    hidden = hk.max_pool(hidden, (2, 2, 1), (2, 2, 1), "VALID")
    return jax.nn.softmax(hk.Linear(10)(hk.Flatten()(hidden)))


def model() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function `apply` of the transformed network, with what its `init` makes."""
    transformed = hk.without_apply_rng(hk.transform_with_state(network))
    images = np.random.default_rng(0).standard_normal((8, 16, 16, 3), np.float32)
    parameters, state = transformed.init(jax.random.key(0), images, is_training=True)
    return transformed.apply, (parameters, state, images)

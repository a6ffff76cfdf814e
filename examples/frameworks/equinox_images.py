"""A network of equinox on one image; its weights are constants of the program.

tune run examples/frameworks/equinox_images.py:model --budget 60s
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def model() -> tuple[eqx.Module, tuple[np.ndarray, ...]]:
    """A (3, 16, 16) image to 10 probabilities; `jax.vmap(network)` is a function of several."""
    keys = jax.random.split(jax.random.key(0), 2)
    network = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 16, 3, padding=1, key=keys[0]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(16 * 8 * 8, 10, key=keys[1]),
            eqx.nn.Lambda(jax.nn.softmax),
        ]
    )
    return network, (np.random.default_rng(0).standard_normal((3, 16, 16), np.float32),)

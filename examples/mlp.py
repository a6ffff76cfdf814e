"""A small perceptron, 784-512-256-10 on a batch of 64: the quick start, tuned in about a minute.

tune run examples/mlp.py:model --budget 60s
"""

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from hlotune import freeze

Params = list[tuple[jax.Array, jax.Array]]

LAYERS = (784, 512, 256, 10)
BATCH = 64


def forward(params: Params, x: jax.Array) -> jax.Array:
    """(64, 784) pixels to (64, 10) logits."""
    for weights, bias in params[:-1]:
        x = jnp.maximum(x @ weights + bias, 0)
    weights, bias = params[-1]
    return x @ weights + bias


def model() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """What `tune` asks for: the function, and arguments to call it with."""
    rng = np.random.default_rng(0)
    params = []
    for inputs, outputs in pairwise(LAYERS):
        weights = rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs))
        params.append((weights.astype(np.float32), np.zeros(outputs, np.float32)))
    return forward, (params, rng.normal(size=(BATCH, LAYERS[0])).astype(np.float32))


def served() -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights of 784-128-64-10."""
    rng = np.random.default_rng(0)
    return [
        (rng.normal(0, np.sqrt(2 / a), (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in pairwise((784, 128, 64, 10))
    ]


def thousand() -> np.ndarray:
    """(1000, 784) pixels."""
    return np.random.default_rng(1).normal(size=(1000, 784)).astype(np.float32)


def batch_1000() -> tuple[Callable[..., jax.Array], tuple[object, ...]]:
    """784-128-64-10 on a batch of 1000, its weights as constants."""
    return freeze(forward, served()), (thousand(),)

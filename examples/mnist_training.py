"""A training step of a perceptron, 784-256-256-10 on a batch of 128: gradients and momentum, f32.

tune run examples/mnist_training.py:model --budget 1m
"""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.layers import Factory, Weights, dense, dense_weights, generator, normal, relu

LAYERS, BATCH, RATE, MOMENTUM = (784, 256, 256, 10), 128, 0.01, 0.9
State = dict[str, Any]
"""Weights, and how each moves."""


def forward(weights: list[Weights], x: jax.Array) -> jax.Array:
    for layer in weights[:-1]:
        x = relu(dense(layer, x))
    return dense(weights[-1], x)


def loss(weights: list[Weights], x: jax.Array, labels: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(forward(weights, x))
    return -jnp.take_along_axis(logits, labels[:, None], 1).mean()


def step(state: State, x: jax.Array, labels: jax.Array) -> tuple[State, jax.Array]:
    """The state behind a step, and the loss before it."""
    value, gradient = jax.value_and_grad(loss)(state["weights"], x, labels)
    moves = jax.tree.map(lambda m, g: MOMENTUM * m + g, state["moves"], gradient)
    weights = jax.tree.map(lambda w, m: w - RATE * m, state["weights"], moves)
    return {"weights": weights, "moves": moves}, value


def model(layers: tuple[int, ...] = LAYERS, batch: int = BATCH) -> Factory:
    rng = generator()
    weights = [dense_weights(rng, a, b) for a, b in pairwise(layers)]
    state = {"weights": weights, "moves": jax.tree.map(np.zeros_like, weights)}
    x = normal(generator(1), (batch, layers[0]))
    return step, (state, x, np.arange(batch, dtype=np.int32) % layers[-1])


def small() -> Factory:
    """For tests."""
    return model((12, 8, 8, 4), 4)

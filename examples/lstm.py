"""A language model of two LSTM layers, f32: 64 words of a batch of 20, 10,000 words known.

tune run examples/lstm.py:model --budget 2m
"""

import jax
import jax.numpy as jnp
import numpy as np

from examples.layers import (
    Factory,
    Weights,
    dense,
    dense_weights,
    frozen,
    generator,
    normal,
)


def forward(weights: Weights, tokens: jax.Array) -> jax.Array:
    """(length, batch) words to (length, batch, words) logits."""
    x = jnp.asarray(weights["words"])[tokens]
    for layer in weights["layers"]:
        x = _layer(layer, x)
    return dense(weights["head"], x)


def _layer(layer: Weights, x: jax.Array) -> jax.Array:
    """(length, batch, width) to the same; what does not depend on the state is done for all."""
    projected = dense(layer["input"], x)
    width = layer["state"].shape[0]
    nothing = jnp.zeros((x.shape[1], width), x.dtype)

    def step(
        carry: tuple[jax.Array, jax.Array], of_input: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = carry
        gates = of_input + hidden @ layer["state"]
        into, forget, new, out = jnp.split(gates, 4, -1)
        cell = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(into) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(out) * jnp.tanh(cell)
        return (hidden, cell), hidden

    return jax.lax.scan(step, (nothing, nothing), projected)[1]


def parameters(words: int = 10_000, width: int = 512, layers: int = 2) -> Weights:
    rng = generator()
    of_state = np.sqrt(1 / width)
    return {
        "words": normal(rng, (words, width)),
        "layers": [
            {
                "input": dense_weights(rng, width, 4 * width),
                "state": normal(rng, (width, 4 * width), of_state),
            }
            for _ in range(layers)
        ],
        "head": dense_weights(rng, width, words),
    }


def model(words: int = 10_000, width: int = 512, length: int = 64, batch: int = 20) -> Factory:
    tokens = generator(1).integers(0, words, (length, batch)).astype(np.int32)
    return frozen(forward, parameters(words, width), tokens)


def small() -> Factory:
    """For tests."""
    return model(50, 16, 5, 3)

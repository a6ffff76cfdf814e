"""GPT-2 of 124 million parameters, f32: reading a prompt of 128 tokens, and decoding one more.

tune run examples/gpt2.py:prefill --budget 2m
tune run examples/gpt2.py:decode --budget 2m
"""

from dataclasses import dataclass

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
    layer_norm,
    layer_norm_weights,
    normal,
)


@dataclass(frozen=True)
class Size:
    layers: int = 12
    width: int = 768
    heads: int = 12
    words: int = 50257
    positions: int = 1024


FULL, SMALL = Size(), Size(2, 32, 4, 100, 16)
Cache = list[tuple[jax.Array, jax.Array]]
"""Keys and values of each layer, (heads, positions, width of a head)."""


def read(weights: Weights, tokens: jax.Array, heads: int) -> tuple[jax.Array, Cache]:
    """(length,) tokens to (length, words) logits, and what later tokens attend to."""
    length = tokens.shape[0]
    x = jnp.asarray(weights["words"])[tokens] + weights["positions"][:length]
    seen = jnp.tril(jnp.ones((length, length), bool))
    cache: Cache = []
    for layer in weights["layers"]:
        query, key, value = _projected(layer, x, heads)
        cache.append((key, value))
        x = _behind(layer, x, _attended(query, key, value, seen))
    return _logits(weights, x), cache


def step(
    weights: Weights, token: jax.Array, place: jax.Array, cache: Cache, heads: int
) -> tuple[jax.Array, Cache]:
    """One (1,) token at a place, behind all before it, to (1, words) logits and the cache then."""
    x = jnp.asarray(weights["words"])[token] + jax.lax.dynamic_slice_in_dim(
        weights["positions"], place, 1
    )
    seen = (jnp.arange(cache[0][0].shape[1]) <= place)[None, :]
    after: Cache = []
    for layer, (keys, values) in zip(weights["layers"], cache, strict=True):
        query, key, value = _projected(layer, x, heads)
        keys = jax.lax.dynamic_update_slice_in_dim(keys, key, place, 1)
        values = jax.lax.dynamic_update_slice_in_dim(values, value, place, 1)
        after.append((keys, values))
        x = _behind(layer, x, _attended(query, keys, values, seen))
    return _logits(weights, x), after


def _projected(layer: Weights, x: jax.Array, heads: int) -> list[jax.Array]:
    """Queries, keys and values, (heads, length, width of a head) each."""
    parts = jnp.split(dense(layer["projections"], layer_norm(layer["first_norm"], x)), 3, -1)
    return [p.reshape(x.shape[0], heads, -1).transpose(1, 0, 2) for p in parts]


def _attended(query: jax.Array, keys: jax.Array, values: jax.Array, seen: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", query, keys) / np.sqrt(query.shape[-1])
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
    together = jnp.einsum("hqk,hkd->qhd", weights, values)
    return together.reshape(together.shape[0], -1)


def _behind(layer: Weights, x: jax.Array, attended: jax.Array) -> jax.Array:
    """The rest of a layer, behind its attention."""
    x = x + dense(layer["output"], attended)
    y = jax.nn.gelu(dense(layer["wider"], layer_norm(layer["second_norm"], x)))
    return x + dense(layer["narrower"], y)


def _logits(weights: Weights, x: jax.Array) -> jax.Array:
    logits: jax.Array = layer_norm(weights["last_norm"], x) @ weights["words"].T
    return logits


def parameters(size: Size = FULL) -> Weights:
    rng, width = generator(), size.width

    def layer() -> Weights:
        return {
            "first_norm": layer_norm_weights(width),
            "projections": dense_weights(rng, width, 3 * width),
            "output": dense_weights(rng, width, width),
            "second_norm": layer_norm_weights(width),
            "wider": dense_weights(rng, width, 4 * width),
            "narrower": dense_weights(rng, 4 * width, width),
        }

    return {
        "words": normal(rng, (size.words, width), 0.02),
        "positions": normal(rng, (size.positions, width), 0.01),
        "layers": [layer() for _ in range(size.layers)],
        "last_norm": layer_norm_weights(width),
    }


def prefill(size: Size = FULL, length: int = 128) -> Factory:
    def function(weights: Weights, tokens: jax.Array) -> tuple[jax.Array, Cache]:
        return read(weights, tokens, size.heads)

    tokens = generator(1).integers(0, size.words, length).astype(np.int32)
    return frozen(function, parameters(size), tokens)


def decode(size: Size = FULL, length: int = 128) -> Factory:
    """One token behind all others of a cache."""

    def function(
        weights: Weights, token: jax.Array, place: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        return step(weights, token, place, cache, size.heads)

    rng, of_head = generator(1), (size.heads, length, size.width // size.heads)
    cache = [(normal(rng, of_head), normal(rng, of_head)) for _ in range(size.layers)]
    token, place = np.array([7], np.int32), np.int32(length - 1)
    return frozen(function, parameters(size), token, place, cache)


def small() -> Factory:
    """For tests."""
    return prefill(SMALL, 8)


def small_decode() -> Factory:
    """For tests."""
    return decode(SMALL, 8)

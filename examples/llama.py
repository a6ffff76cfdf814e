"""A decoder of 1.1 billion parameters in bf16: reading a prompt of 128 tokens, and one more token.

Twenty-two layers of 2048 numbers a token.  Thirty-two heads of queries share four of keys and
values; places are told by rotating queries and keys, norms have no mean, and the layers behind
attention are gated.  Weights are random, drawn from a seed.

    tune run examples/llama.py:decode --budget 2m
    tune run examples/llama.py:prefill --budget 5m
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from examples.layers import Factory, Weights, frozen, generator, normal


@dataclass(frozen=True)
class Size:
    """`groups` heads of keys and values serve `heads` heads of queries."""

    layers: int = 22
    width: int = 2048
    heads: int = 32
    groups: int = 4
    hidden: int = 5632
    words: int = 32000

    @property
    def of_head(self) -> int:
        return self.width // self.heads


FULL, SMALL = Size(), Size(2, 64, 4, 2, 96, 100)
LENGTH, PERIOD, EPSILON = 128, 10000.0, 1e-5
Cache = list[tuple[jax.Array, jax.Array]]
"""Keys and values of each layer, (groups, positions, width of a head)."""


def read(weights: Weights, tokens: jax.Array, size: Size) -> tuple[jax.Array, Cache]:
    """(length,) tokens to (length, words) logits, and what later tokens attend to."""
    length = tokens.shape[0]
    x, places = jnp.asarray(weights["words"])[tokens], jnp.arange(length)
    seen = jnp.tril(jnp.ones((length, length), bool))
    cache: Cache = []
    for layer in weights["layers"]:
        query, keys, values = _projected(layer, x, places, size)
        cache.append((keys, values))
        x = _behind(layer, x, _attended(query, keys, values, seen))
    return _logits(weights, x), cache


def step(
    weights: Weights, token: jax.Array, place: jax.Array, cache: Cache, size: Size
) -> tuple[jax.Array, Cache]:
    """One (1,) token at a place, behind all before it, to (1, words) logits and the cache then."""
    x = jnp.asarray(weights["words"])[token]
    seen = (jnp.arange(cache[0][0].shape[1]) <= place)[None, :]
    after: Cache = []
    for layer, (keys, values) in zip(weights["layers"], cache, strict=True):
        query, key, value = _projected(layer, x, place[None], size)
        keys = lax.dynamic_update_slice_in_dim(keys, key, place, 1)
        values = lax.dynamic_update_slice_in_dim(values, value, place, 1)
        after.append((keys, values))
        x = _behind(layer, x, _attended(query, keys, values, seen))
    return _logits(weights, x), after


def norm(gain: jax.Array, x: jax.Array) -> jax.Array:
    """Divides by the root of the mean square, in f32."""
    wide = x.astype(jnp.float32)
    scale = lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPSILON)
    return (wide * scale * gain).astype(x.dtype)


def _projected(
    layer: Weights, x: jax.Array, places: jax.Array, size: Size
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries (heads, length, of_head), and keys and values (groups, length, of_head)."""
    y = norm(layer["first_norm"], x)

    def by_head(name: str, heads: int) -> jax.Array:
        projected: jax.Array = y @ layer[name]
        return projected.reshape(-1, heads, size.of_head).transpose(1, 0, 2)

    query, key = by_head("query", size.heads), by_head("key", size.groups)
    return rotated(query, places), rotated(key, places), by_head("value", size.groups)


def rotated(x: jax.Array, places: jax.Array) -> jax.Array:
    """Turns the halves of each head against each other, by an angle that its place gives."""
    half = x.shape[-1] // 2
    angles = places[:, None] * PERIOD ** (-jnp.arange(half) / half)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    turned = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(turned, -1).astype(x.dtype)


def _attended(query: jax.Array, keys: jax.Array, values: jax.Array, seen: jax.Array) -> jax.Array:
    """(length, width): each group of keys and values serves several heads of queries."""
    groups, of_head = keys.shape[0], keys.shape[2]
    heads, length = query.shape[:2]
    shared = query.reshape(groups, heads // groups, length, of_head)
    scores = jnp.einsum("ghqd,gkd->ghqk", shared, keys).astype(jnp.float32) / np.sqrt(of_head)
    weights = jax.nn.softmax(jnp.where(seen, scores, -1e9)).astype(values.dtype)
    together = jnp.einsum("ghqk,gkd->qghd", weights, values)
    return together.reshape(length, -1)


def _behind(layer: Weights, x: jax.Array, attended: jax.Array) -> jax.Array:
    """The rest of a layer, behind its attention."""
    x = x + attended @ layer["output"]
    y = norm(layer["second_norm"], x)
    gated: jax.Array = jax.nn.silu(y @ layer["gate"]) * (y @ layer["wider"])
    made: jax.Array = x + gated @ layer["narrower"]
    return made


def _logits(weights: Weights, x: jax.Array) -> jax.Array:
    logits: jax.Array = norm(weights["last_norm"], x) @ weights["head"]
    return logits.astype(jnp.float32)


def parameters(size: Size = FULL) -> Weights:
    """2.2 GB at full size."""
    rng, width = generator(), size.width
    narrow = size.groups * size.of_head

    def matrix(inputs: int, outputs: int) -> np.ndarray:
        return _narrow(rng, (inputs, outputs), 1 / np.sqrt(inputs))

    def layer() -> Weights:
        return {
            "first_norm": np.ones(width, np.float32),
            "query": matrix(width, width),
            "key": matrix(width, narrow),
            "value": matrix(width, narrow),
            "output": matrix(width, width),
            "second_norm": np.ones(width, np.float32),
            "gate": matrix(width, size.hidden),
            "wider": matrix(width, size.hidden),
            "narrower": matrix(size.hidden, width),
        }

    return {
        "words": _narrow(rng, (size.words, width), 1.0),
        "layers": [layer() for _ in range(size.layers)],
        "last_norm": np.ones(width, np.float32),
        "head": matrix(width, size.words),
    }


def _narrow(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> np.ndarray:
    """Normal values in bf16, which nobody changes."""
    values = normal(rng, shape, deviation).astype(ml_dtypes.bfloat16)
    values.flags.writeable = False
    return values


def prefill(size: Size = FULL, length: int = LENGTH) -> Factory:
    def function(weights: Weights, tokens: jax.Array) -> tuple[jax.Array, Cache]:
        return read(weights, tokens, size)

    tokens = generator(1).integers(0, size.words, length).astype(np.int32)
    return frozen(function, parameters(size), tokens)


def decode(size: Size = FULL, length: int = LENGTH) -> Factory:
    """One token behind all others of a cache."""

    def function(
        weights: Weights, token: jax.Array, place: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        return step(weights, token, place, cache, size)

    rng, of_cache = generator(1), (size.groups, length, size.of_head)
    cache = [(_narrow(rng, of_cache, 1.0), _narrow(rng, of_cache, 1.0)) for _ in range(size.layers)]
    return frozen(function, parameters(size), np.array([7], np.int32), np.int32(length - 1), cache)


def small() -> Factory:
    """For tests."""
    return prefill(SMALL, 8)


def small_decode() -> Factory:
    """For tests."""
    return decode(SMALL, 8)

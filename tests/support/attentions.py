"""Programs of attention as people write them, of small extents."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import Site, sites

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> Any:
    return argument(f"f32[{','.join(map(str, shape))}]")


def plain(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("htd,hsd->hts", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("hts,hsd->htd", jax.nn.softmax(scores), v)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def by_hand(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Causal, with infinities for what is masked, and scores that are divided."""
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / jnp.sqrt(q.shape[-1])
    allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool), k.shape[1] - q.shape[1])
    weights = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf))
    return jnp.einsum("bhts,bshd->bthd", weights, v)


def projected(x: jax.Array, w: jax.Array, out: jax.Array) -> jax.Array:
    """With the products around it that a layer has."""
    q, k, v = (y.reshape(2, 9, 2, 8).transpose(0, 2, 1, 3) for y in jnp.split(x @ w, 3, -1))
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / 8**0.5
    heads = jnp.einsum("bhts,bhsd->bhtd", jax.nn.softmax(scores), v)
    return heads.transpose(0, 2, 1, 3).reshape(2, 9, 16) @ out


def merged(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Queries, keys, values and results with batches in one axis with tokens, heads with depth."""
    q, k, v = (y.reshape(2, 21, 2, 24) for y in (q, k, v))
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) / 24**0.5)
    return jnp.einsum("bhts,bshd->bthd", weights, v).reshape(42, 48)


def of_one_product(x: jax.Array) -> jax.Array:
    """Queries, keys and values as parts of one product's result; causal."""
    q, k, v = (y.reshape(21, 2, 16).transpose(1, 0, 2) for y in jnp.split(x, 3, -1))
    allowed = jnp.tril(jnp.ones((21, 21), bool))
    scores = jnp.where(allowed, q @ k.swapaxes(-1, -2) / 4, -jnp.inf)
    return (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(21, 32)


def against_cache(q: jax.Array, k: jax.Array, v: jax.Array, places: jax.Array) -> jax.Array:
    """One query, behind as many places of a cache as are given; four heads share keys."""
    scores = jnp.einsum("gnqd,gsd->gnqs", q.reshape(2, 4, 1, 16), k) / 4
    seen = jnp.where(jnp.arange(53) < places, scores, -1e9)
    return jnp.einsum("gnqs,gsd->gnqd", jax.nn.softmax(seen), v).reshape(1, 128)


HEADS = (f32(1, 37, 2, 16),) * 3
PROGRAMS: dict[str, Program] = {
    "plain": (plain, (f32(2, 21, 16), f32(2, 39, 16), f32(2, 39, 24))),
    "jax": (jax.nn.dot_product_attention, HEADS),
    "causal": (causal, HEADS),
    "by hand": (by_hand, (f32(1, 21, 2, 16), f32(1, 37, 2, 16), f32(1, 37, 2, 16))),
    "bias and mask": (
        lambda q, k, v, b, m: jax.nn.dot_product_attention(q, k, v, bias=b, mask=m),
        (*HEADS, f32(1, 2, 37, 37), argument("i1[1,1,1,37]")),
    ),
    "grouped": (
        jax.nn.dot_product_attention, (f32(1, 19, 6, 16), f32(1, 21, 2, 16), f32(1, 21, 2, 16)),
    ),
    "shared argument": (
        lambda q, both: jax.nn.dot_product_attention(q, both[0], both[1]),
        (f32(1, 19, 6, 16), f32(2, 1, 21, 2, 16)),
    ),
    "decoding": (
        jax.nn.dot_product_attention, (f32(1, 1, 6, 16), f32(1, 53, 2, 16), f32(1, 53, 2, 16)),
    ),
    "one query": (plain, (f32(3, 1, 16), f32(3, 53, 16), f32(3, 53, 16))),
    "merged": (merged, (f32(42, 48),) * 3),
    "of one product": (of_one_product, (f32(21, 96),)),
    "against a cache": (
        against_cache, (f32(1, 128), f32(2, 53, 16), f32(2, 53, 16), argument("i32[]")),
    ),
    "bf16": (jax.nn.dot_product_attention, (argument("bf16[1,21,2,16]"),) * 3),
    "f16": (plain, (argument("f16[2,21,16]"),) * 3),
}  # fmt: skip


def attention_sites(name: str) -> list[Site]:
    function, arguments = PROGRAMS[name]
    return [s for s in sites(load(function, *arguments)) if s.pattern == "attention"]

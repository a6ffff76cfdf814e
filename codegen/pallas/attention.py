"""`triton_attention`: a block of queries a program, blocks of keys one after another."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import LOG2_E, dot, struct
from hlotune.codegen.pallas.flat_loads import flat
from hlotune.codegen.pallas.tails import tailed
from hlotune.codegen.pallas.triton import both, call, inside, load, padded, store
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.spaces.gpu.space import next_power_of_two

MASKED = -1e30
"""A score that counts for nothing; infinities would make NaN of rows that see no key."""
LEAST = float(np.finfo(np.float32).min)
Sums = tuple[jax.Array, jax.Array, jax.Array]


def triton_attention(
    attention: GpuAttention, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Attention of `q (heads, queries, depth)` to `k (key heads, keys, depth)` and
    `v (key heads, keys, features)`; further operands are what `attention.scores` reads.
    """
    a = attention
    result = struct((a.heads, a.queries, a.features), a.element)
    body = functools.partial(_queries, a, knobs)
    operands = (*operands[:3], *map(flat, operands[3:]))
    # Heads change fastest: blocks of all heads that are equally long run at the same time.
    grid = (a.heads, pl.cdiv(a.queries, knobs["block_q"]))
    return call(body, grid, operands, result, knobs, interpret)


def _queries(a: GpuAttention, knobs: dict[str, int], q: Any, k: Any, v: Any, *rest: Any) -> None:
    *read, out = rest
    bq, bk = knobs["block_q"], knobs["block_k"]
    blocks = pl.cdiv(a.queries, bq)
    # The longest blocks of a causal attention are begun first, so that the last ones are short.
    block = blocks - 1 - pl.program_id(1) if a.causal else pl.program_id(1)
    head, start = pl.program_id(0), block * bq
    key_head = head if a.group == 1 else lax.div(head, jnp.int32(a.group))
    width, columns, in_depth = _across(a.depth)
    wide, features, in_features = _across(a.features)
    in_q, rows = inside(start, bq, a.queries), pl.ds(start, bq)
    queries = load(q.at[head, rows, columns], both(in_q, in_depth, (bq, width)))
    # Scores that are tails stay in units of the exponential, whose least numbers must not overflow.
    least = MASKED if a.scores is None else LEAST
    outside = MASKED if a.scores is None else -jnp.inf

    def scored(made: jax.Array, n: jax.Array, in_k: Any, masked: bool) -> jax.Array:
        """What the softmax is taken of, for a block of keys."""
        if a.scores is None:
            made = made * (LOG2_E * a.factor)
        else:
            places = head * a.queries + start + jnp.arange(bq), in_q
            made = tailed(a.scores, read, made, places, (n * bk + jnp.arange(bk), in_k))
        if masked or in_k is not None:
            made = jnp.where(_seen(a, start, n * bk, (bq, bk)), made, outside)
        return made

    def power(x: jax.Array) -> jax.Array:
        return jnp.exp2(x if a.scores is None else x * LOG2_E)

    def step(n: jax.Array, sums: Sums, masked: bool) -> Sums:
        made, largest, total = sums
        in_k, at_k = inside(n * bk, bk, a.keys), pl.ds(n * bk, bk)
        keys = load(k.at[key_head, at_k, columns], both(in_k, in_depth, (bk, width)))
        scores = scored(dot(queries, keys, a.element, transposed=True), n, in_k, masked)
        larger = jnp.maximum(largest, jnp.max(scores, axis=1))
        weights = power(scores - larger[:, None])
        fading = power(largest - larger)
        values = load(v.at[key_head, at_k, features], both(in_k, in_features, (bk, wide)))
        made = made * fading[:, None] + dot(weights.astype(values.dtype), values, a.element)
        return made, larger, total * fading + jnp.sum(weights, axis=1)

    sums = (
        jnp.zeros((bq, wide), jnp.float32),
        jnp.full((bq,), least, jnp.float32),
        jnp.zeros((bq,), jnp.float32),
    )
    for first, last, masked in _stretches(a, start, bq, bk):
        sums = lax.fori_loop(first, last, functools.partial(step, masked=masked), sums)
    made = sums[0] * (1 / sums[2])[:, None]
    mask = both(in_q, in_features, (bq, wide))
    store(out.at[head, rows, features], made.astype(out.dtype), mask)


def _across(extent: int) -> tuple[int, Any, Any]:
    """A power of two that holds an extent, the indices of such a block, and which there are."""
    width = max(16, next_power_of_two(extent))
    return width, padded(extent, width), inside(jnp.int32(0), width, extent)


def _stretches(a: GpuAttention, start: jax.Array, bq: int, bk: int) -> list[tuple[Any, Any, bool]]:
    """Blocks of keys from and to, and whether some of their scores do not count."""
    blocks = pl.cdiv(a.keys, bk)
    if not a.causal:
        return [(0, blocks, False)]
    seen_by_all = jnp.minimum(lax.div(start, bk), blocks)
    seen_by_last = jnp.minimum(lax.div(start + bq + bk - 1, bk), blocks)
    return [(0, seen_by_all, False), (seen_by_all, seen_by_last, True)]


def _seen(a: GpuAttention, query: jax.Array, key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """Which pairs of a block of queries and keys from these on count."""
    keys = key + lax.broadcasted_iota(jnp.int32, shape, 1)
    seen = keys < a.keys
    if a.causal:
        seen = seen & (query + lax.broadcasted_iota(jnp.int32, shape, 0) >= keys)
    return seen

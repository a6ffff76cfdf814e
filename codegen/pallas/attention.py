"""`triton_attention`: a block of queries a program, blocks of keys one after another."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import LOG2_E, dot, struct
from hlotune.codegen.pallas.triton import both, call, inside, load, padded, store
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.spaces.gpu.space import next_power_of_two

MASKED = -1e30
"""A score that counts for nothing; infinities would make NaN of rows that see no key."""
Sums = tuple[jax.Array, jax.Array, jax.Array]


def triton_attention(
    attention: GpuAttention, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Attention of `q (heads, queries, depth)` to `k` and `v (heads, keys, depth)`."""
    a = attention
    result = struct((a.heads, a.queries, a.depth), a.element)
    body = functools.partial(_queries, a, knobs)
    # Heads change fastest: blocks of all heads that are equally long run at the same time.
    grid = (a.heads, pl.cdiv(a.queries, knobs["block_q"]))
    return call(body, grid, operands, result, knobs, interpret)


def _queries(a: GpuAttention, knobs: dict[str, int], q: Any, k: Any, v: Any, out: Any) -> None:
    bq, bk = knobs["block_q"], knobs["block_k"]
    blocks = pl.cdiv(a.queries, bq)
    # The longest blocks of a causal attention are begun first, so that the last ones are short.
    block = blocks - 1 - pl.program_id(1) if a.causal else pl.program_id(1)
    head, start = pl.program_id(0), block * bq
    width = max(16, next_power_of_two(a.depth))
    in_q, in_depth = inside(start, bq, a.queries), inside(jnp.int32(0), width, a.depth)
    columns = padded(a.depth, width)
    at_q = (head, pl.ds(start, bq), columns)
    queries = load(q.at[at_q], both(in_q, in_depth, (bq, width)))
    scale = LOG2_E * a.factor

    def step(n: jax.Array, sums: Sums, masked: bool) -> Sums:
        made, largest, total = sums
        in_k = inside(n * bk, bk, a.keys)
        at_k = (head, pl.ds(n * bk, bk), columns)
        mask = both(in_k, in_depth, (bk, width))
        scores = dot(queries, load(k.at[at_k], mask), a.element, transposed=True) * scale
        if masked or in_k is not None:
            scores = jnp.where(_seen(a, start, n * bk, (bq, bk)), scores, MASKED)
        larger = jnp.maximum(largest, jnp.max(scores, axis=1))
        weights = jnp.exp2(scores - larger[:, None])
        fading = jnp.exp2(largest - larger)
        values = load(v.at[at_k], mask)
        made = made * fading[:, None] + dot(weights.astype(values.dtype), values, a.element)
        return made, larger, total * fading + jnp.sum(weights, axis=1)

    sums = (
        jnp.zeros((bq, width), jnp.float32),
        jnp.full((bq,), MASKED, jnp.float32),
        jnp.zeros((bq,), jnp.float32),
    )
    for first, last, masked in _stretches(a, start, bq, bk):
        sums = lax.fori_loop(first, last, functools.partial(step, masked=masked), sums)
    made = sums[0] * (1 / sums[2])[:, None]
    store(out.at[at_q], made.astype(out.dtype), both(in_q, in_depth, (bq, width)))


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

"""`tpu_attention`: blocks of queries, and for each the blocks of keys one after another.

The largest score, the sum of the exponentials and the results so far stay in vector memory over the
last axis of the grid, while Pallas copies the next keys and values.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import dot, struct
from hlotune.codegen.pallas.tpu import compiler_parameters, mosaic
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.spaces.tpu.attention import held_bytes

MASKED = -1e30
"""A score that counts for nothing; infinities would make NaN of rows that see no key."""


def tpu_attention(
    attention: GpuAttention, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Attention of `q (heads, queries, depth)` to `k (key heads, keys, depth)` and
    `v (key heads, keys, features)`.
    """
    a, bq, bk = attention, knobs["block_q"], knobs["block_k"]

    def of_keys(width: int) -> Any:
        return pl.BlockSpec((1, bk, width), lambda head, i, n: (_key_head(a, head), n, 0))

    called = pl.pallas_call(
        functools.partial(_step, a, knobs),
        out_shape=struct((a.heads, a.queries, a.features), a.element),
        grid=(a.heads, pl.cdiv(a.queries, bq), pl.cdiv(a.keys, bk)),
        in_specs=[
            pl.BlockSpec((1, bq, a.depth), lambda head, i, n: (head, i, 0)),
            of_keys(a.depth),
            of_keys(a.features),
        ],
        out_specs=pl.BlockSpec((1, bq, a.features), lambda head, i, n: (head, i, 0)),
        scratch_shapes=[mosaic.VMEM((bq, width), jnp.float32) for width in (a.features, 1, 1)],
        compiler_params=compiler_parameters(
            ("parallel", "parallel", "arbitrary"), int(held_bytes(a, bq, bk))
        ),
        interpret=interpret,
    )
    made: jax.Array = called(*operands)
    return made


def _key_head(a: GpuAttention, head: Any) -> Any:
    return head if a.group == 1 else lax.div(head, jnp.int32(a.group))


def _step(
    a: GpuAttention,
    knobs: dict[str, int],
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    made: Any,
    largest: Any,
    total: Any,
) -> None:
    """One block of keys; the last one stores the results."""
    bq, bk = knobs["block_q"], knobs["block_k"]
    query, number = pl.program_id(1) * bq, pl.program_id(2)
    key = number * bk

    @pl.when(number == 0)
    def _start() -> None:
        made[...] = jnp.zeros_like(made)
        largest[...] = jnp.full_like(largest, MASKED)
        total[...] = jnp.zeros_like(total)

    def add() -> None:
        scores = dot(q[0], k[0], a.element, transposed=True) * a.factor
        if a.causal or a.keys % bk:
            scores = jnp.where(_seen(a, query, key, (bq, bk)), scores, MASKED)
        values = v[0]
        if a.keys % bk:  # behind the end of an array, blocks hold anything
            there = key + lax.broadcasted_iota(jnp.int32, values.shape, 0) < a.keys
            values = jnp.where(there, values, jnp.zeros_like(values))
        larger = jnp.maximum(largest[...], jnp.max(scores, axis=1, keepdims=True))
        fading, weights = jnp.exp(largest[...] - larger), jnp.exp(scores - larger)
        made[...] = made[...] * fading + dot(weights.astype(values.dtype), values, a.element)
        total[...] = total[...] * fading + jnp.sum(weights, axis=1, keepdims=True)
        largest[...] = larger

    pl.when(key < query + bq)(add) if a.causal else add()

    @pl.when(number == pl.num_programs(2) - 1)
    def _end() -> None:
        out[0] = (made[...] / total[...]).astype(out.dtype)


def _seen(a: GpuAttention, query: Any, key: Any, shape: tuple[int, int]) -> jax.Array:
    """Which pairs of a block of queries and keys from these on count."""
    keys = key + lax.broadcasted_iota(jnp.int32, shape, 1)
    seen: jax.Array = keys < a.keys
    if a.causal:
        seen = seen & (query + lax.broadcasted_iota(jnp.int32, shape, 0) >= keys)
    return seen

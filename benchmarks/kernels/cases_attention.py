"""Attention forward, as JAX writes it."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.kernels.case import Case, f32


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    return jax.nn.softmax(scores) @ v


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
    length = q.shape[1]
    allowed = jnp.tril(jnp.ones((length, length), bool))
    return jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf)) @ v


def decoding(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Queries of 32 heads, one position; keys and values of 8 heads, each for 4 queries."""
    grouped = q.reshape(8, 4, 1, 128)
    scores = jnp.einsum("gnqd,gkd->gnqk", grouped, k) * 128**-0.5
    return jnp.einsum("gnqk,gkd->gnqd", jax.nn.softmax(scores), v).reshape(32, 1, 128)


def torch_attention(t: Any, q: Any, k: Any, v: Any, *, is_causal: bool = False) -> Any:
    function = t.nn.functional.scaled_dot_product_attention
    return function(q[None], k[None], v[None], is_causal=is_causal)[0]


def torch_decoding(t: Any, q: Any, k: Any, v: Any) -> Any:
    function = t.nn.functional.scaled_dot_product_attention
    return function(q[None], k[None], v[None], enable_gqa=True)[0]


def onnx_attention(g: Any, q: Any, k: Any, v: Any) -> Any:
    scores = g.Mul(g.MatMul(q, g.Transpose(k, perm=[0, 2, 1])), 64**-0.5)
    return g.MatMul(g.Softmax(scores, axis=-1), v)


def _heads(heads: int, length: int, depth: int) -> tuple[Any, ...]:
    return (f32(heads, length, depth),) * 3


CASES = (
    Case(
        name="attention 12x128x64", given=_heads(12, 128, 64), jax=attention,
        torch=torch_attention, onnx=onnx_attention,
    ),
    *(
        Case(
            name=f"attention causal 12x{length}x64", given=_heads(12, length, 64), jax=causal,
            torch=lambda t, q, k, v: torch_attention(t, q, k, v, is_causal=True),
        )
        for length in (384, 1024)
    ),
    Case(
        name="decoding 32x1x128 against 8x2048x128",
        given=(f32(32, 1, 128), f32(8, 2048, 128), f32(8, 2048, 128)), jax=decoding,
        torch=torch_decoding,
    ),
)  # fmt: skip

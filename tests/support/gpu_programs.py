"""Small programs whose kernels GPUs have schedules for as stages over rows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.program import argument

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def f32(*shape: int) -> Any:
    return argument(f"f32[{','.join(map(str, shape))}]")


def layer_norm(x: jax.Array, gain: jax.Array, offset: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + offset


def masked_softmax(x: jax.Array) -> jax.Array:
    seen = jnp.tril(jnp.ones(x.shape[-2:], bool))
    return jax.nn.softmax(jnp.where(seen, x, -1e9))


def batch_norm(x: jax.Array) -> jax.Array:
    return (x - x.mean((0, 1))) * lax.rsqrt(x.var((0, 1)) + 1e-5)


def pooled(x: jax.Array) -> jax.Array:
    made: jax.Array = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    return made


def exponentials(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two results, of different ranks."""
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers.sum(-1), powers


def with_integers(x: jax.Array, n: jax.Array, m: jax.Array) -> jax.Array:
    return jnp.where(m & (n > 3), x * n, jnp.abs(x) - 1)


PROGRAMS: dict[str, Program] = {
    "softmax": (jax.nn.softmax, (f32(21, 100),)),
    "layer norm": (layer_norm, (f32(21, 100), f32(100), f32(100))),
    "layer norm of bf16": (layer_norm, (argument("bf16[16,96]"),) + (argument("bf16[96]"),) * 2),
    "masked softmax": (masked_softmax, (f32(3, 37, 37),)),
    "batch norm": (batch_norm, (f32(4, 10, 40),)),
    "pooling": (pooled, (f32(2, 9, 9, 16),)),
    "exponentials": (exponentials, (f32(3, 13, 40),)),
    "Gaussian unit": (lambda x, b: jax.nn.gelu(x + b, approximate=False), (f32(40, 100), f32(100))),
    "transpose": (lambda x: x.reshape(8, 5, 100).transpose(1, 2, 0) * 2 + 1, (f32(40, 100),)),
    "sum of columns": (lambda x: jnp.sum(x, 0), (f32(40, 100),)),
    "integers": (with_integers, (f32(40, 100), argument("i32[40,100]"), argument("i1[40,100]"))),
}  # fmt: skip

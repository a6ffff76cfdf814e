"""Each kernel as a user of JAX writes it, and in higher precision for verification."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.codegen.pallas.build import operands
from hlotune.codegen.pallas.elements import DTYPES
from hlotune.codegen.pallas.rows import EPSILON
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)

Program = Callable[..., jax.Array]
LIMITS = {"bf16": 1e-2, "f16": 2e-3, "tf32": 2e-3, "f32": 1e-5}
"""Largest error of a right result: of the difference's norm over the reference's norm."""
WORST = 0.05
"""Largest error of one element, over its own size and the root mean square of all together."""


def program(kernel: GpuKernel) -> Program:
    """The program, in the kernel's types, which XLA compiles as it does by default."""
    exact = kernel.element == "f32"
    return _program(kernel, lax.Precision.HIGHEST if exact else None, DTYPES[kernel.element])


def reference(kernel: GpuKernel) -> Program:
    """The same in f32, without the matrix unit's rounding."""
    made = _program(kernel, lax.Precision.HIGHEST, jnp.float32)

    def in_f32(*values: jax.Array) -> jax.Array:
        return made(*(v.astype(jnp.float32) for v in values))

    return in_f32


def _program(kernel: GpuKernel, precision: Any, dtype: Any) -> Program:
    match kernel:
        case GpuProduct():
            return lambda a, b, *bias: _finished(
                kernel, jnp.matmul(a, b, precision=precision), *bias
            )
        case GpuRows(operation="softmax"):
            return lambda x: jax.nn.softmax(x, axis=-1)
        case GpuRows():
            return _layer_norm
        case GpuAttention():
            return lambda q, k, v: _attention(kernel, q, k, v, precision, dtype)
        case GpuConvolution():
            return lambda x, w, *bias: _finished(
                kernel, _convolution(kernel, x, w, precision), *bias
            )


def _finished(kernel: GpuProduct | GpuConvolution, made: jax.Array, *bias: jax.Array) -> jax.Array:
    """What the kernel's epilogue makes of it."""
    for values in bias:
        made = made + values
    if kernel.epilogue == "bias_relu":
        return jax.nn.relu(made)
    return jax.nn.gelu(made, approximate=False) if kernel.epilogue == "bias_gelu" else made


def _layer_norm(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = wide.mean(axis=-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(axis=-1, keepdims=True)
    return ((wide - mean) * lax.rsqrt(variance + EPSILON) * scale + offset).astype(x.dtype)


def _attention(
    a: GpuAttention, q: jax.Array, k: jax.Array, v: jax.Array, precision: Any, dtype: Any
) -> jax.Array:
    k, v = (jnp.repeat(x, a.group, axis=0) for x in (k, v))
    scores = jnp.einsum(
        "hqd,hkd->hqk", q, k, precision=precision, preferred_element_type=jnp.float32
    ) / math.sqrt(a.depth)
    if a.causal:
        seen = jnp.arange(a.queries)[:, None] >= jnp.arange(a.keys)[None, :]
        scores = jnp.where(seen, scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(dtype)
    return jnp.einsum("hqk,hkd->hqd", weights, v, precision=precision)


def _convolution(c: GpuConvolution, x: jax.Array, w: jax.Array, precision: Any) -> jax.Array:
    around = (c.padding, c.padding)
    return lax.conv_general_dilated(
        x,
        w,
        (c.stride, c.stride),
        (around, around),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=precision,
    )


def inputs(kernel: GpuKernel, seed: int) -> tuple[jax.Array, ...]:
    """Random operands on the device, normally distributed."""
    keys = jax.random.split(jax.random.key(seed), 4)
    made = zip(keys, operands(kernel), strict=False)
    return tuple(jax.random.normal(key, o.shape, jnp.float32).astype(o.dtype) for key, o in made)


@jax.jit
def errors(result: jax.Array, wanted: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Norm of the difference over the norm of the reference, and the worst element's error."""
    wide = wanted.astype(jnp.float32)
    away = result.astype(jnp.float32) - wide
    mean_square = jnp.sqrt(jnp.mean(wide * wide))
    worst = jnp.max(jnp.abs(away) / (mean_square + jnp.abs(wide)))
    return jnp.sqrt(jnp.mean(away * away)) / mean_square, worst

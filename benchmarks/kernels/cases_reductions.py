"""Reductions of whole tensors, and contractions that are little more."""

import jax.numpy as jnp

from benchmarks.kernels.case import Case, f32

CASES = (
    Case(
        name="sum of rows 4096x4096", given=(f32(4096, 4096),),
        jax=lambda x: x.sum(1), torch=lambda t, x: x.sum(1),
        onnx=lambda g, x: g.ReduceSum(x, [1], keepdims=0),
    ),
    Case(
        name="sum of columns 4096x4096", given=(f32(4096, 4096),),
        jax=lambda x: x.sum(0), torch=lambda t, x: x.sum(0),
        onnx=lambda g, x: g.ReduceSum(x, [0], keepdims=0),
    ),
    Case(
        name="sum of all 4096x4096", given=(f32(4096, 4096),), tolerance=2e-3,
        jax=lambda x: x.sum(), torch=lambda t, x: x.sum(),
        onnx=lambda g, x: g.ReduceSum(x, keepdims=0),
    ),
    Case(
        name="argmax 512x32000", given=(f32(512, 32000),),
        jax=lambda x: jnp.argmax(x, 1).astype(jnp.int32),
        torch=lambda t, x: x.argmax(1).int(),
        onnx=lambda g, x: g.Cast(g.ArgMax(x, axis=1, keepdims=0), to=6),
    ),
    Case(
        name="mean and variance of columns 8192x1024", given=(f32(8192, 1024),), tolerance=1e-3,
        jax=lambda x: (x.mean(0), x.var(0)),
        torch=lambda t, x: (x.mean(0), x.var(0, correction=0)),
    ),
    Case(
        name="P13 nxyc,mxyc->nmxy", given=(f32(100, 20, 20, 3), f32(200, 20, 20, 3)),
        jax=lambda a, b: jnp.einsum("nxyc,mxyc->nmxy", a, b), goal_s=1.5e-3,
        torch=lambda t, a, b: t.einsum("nxyc,mxyc->nmxy", a, b),
    ),
)  # fmt: skip

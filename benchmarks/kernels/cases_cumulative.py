"""Cumulative sums, products, largest elements and logarithms of sums of exponentials."""

import jax
import jax.numpy as jnp

from benchmarks.kernels.case import Case, Given, f32, positive

CASES = (
    Case(
        name="P14 cumsum u32 65536x1024 axis 0", given=(Given("u32", (65536, 1024)),),
        jax=lambda x: jnp.cumsum(x, 0), goal_s=37e-3,
    ),
    Case(
        name="P14 cumsum u32 65536x1024 axis 1", given=(Given("u32", (65536, 1024)),),
        jax=lambda x: jnp.cumsum(x, 1),
    ),
    Case(
        name="P14 cumsum f32 65536x128 axis 0", given=(f32(65536, 128),),
        jax=lambda x: jnp.cumsum(x, 0), torch=lambda t, x: x.cumsum(0), tolerance=1e-3,
        onnx=lambda g, x: g.CumSum(x, 0),
    ),
    Case(
        name="P14 cumsum f64 360x160x120x3 axis 0", given=(Given("f64", (360, 160, 120, 3)),),
        jax=lambda x: jnp.cumsum(x, 0), torch=lambda t, x: x.cumsum(0),
    ),
    Case(
        name="cumsum f32 512x32000 axis 1", given=(f32(512, 32000),),
        jax=lambda x: jnp.cumsum(x, 1), torch=lambda t, x: x.cumsum(1), tolerance=1e-3,
    ),
    Case(
        name="cummax f32 4096x1024 axis 0", given=(f32(4096, 1024),),
        jax=lambda x: jax.lax.cummax(x, 0), torch=lambda t, x: x.cummax(0).values,
    ),
    Case(
        name="cumprod f32 4096x1024 axis 1", given=(f32(4096, 1024, draw=positive),),
        jax=lambda x: jnp.cumprod(x, 1), torch=lambda t, x: x.cumprod(1), tolerance=1e-3,
    ),
    Case(
        name="cumlogsumexp f32 4096x1024 axis 1", given=(f32(4096, 1024),),
        jax=lambda x: jax.lax.cumlogsumexp(x, 1), torch=lambda t, x: x.logcumsumexp(1),
    ),
)  # fmt: skip

"""Elementwise groups, transposes, and index maps."""

import jax
import jax.numpy as jnp

from benchmarks.kernels.case import Case, Given, bf16, f32

CASES = (
    Case(
        name="gelu(x + bias) 512x3072", given=(f32(512, 3072), f32(3072)),
        jax=lambda x, b: jax.nn.gelu(x + b, approximate=False),
        torch=lambda t, x, b: t.nn.functional.gelu(x + b),
        onnx=lambda g, x, b: g.Gelu(g.Add(x, b)),
    ),
    Case(
        name="gelu by tanh 512x3072", given=(f32(512, 3072), f32(3072)),
        jax=lambda x, b: jax.nn.gelu(x + b),
        torch=lambda t, x, b: t.nn.functional.gelu(x + b, approximate="tanh"),
        onnx=lambda g, x, b: g.Gelu(g.Add(x, b), approximate="tanh"),
    ),
    Case(
        name="gelu bf16 512x3072", given=(bf16(512, 3072), bf16(3072)), tolerance=2e-2,
        jax=lambda x, b: jax.nn.gelu(x + b),
        torch=lambda t, x, b: t.nn.functional.gelu(x + b, approximate="tanh"),
    ),
    Case(
        name="relu(x + y) 56x56x256", given=(f32(56, 56, 256), f32(56, 56, 256)),
        jax=lambda x, y: jax.nn.relu(x + y),
        torch=lambda t, x, y: t.relu(x + y),
        onnx=lambda g, x, y: g.Relu(g.Add(x, y)),
    ),
    Case(
        name="silu(x) * y 512x11008", given=(f32(512, 11008), f32(512, 11008)),
        jax=lambda x, y: jax.nn.silu(x) * y,
        torch=lambda t, x, y: t.nn.functional.silu(x) * y,
        onnx=lambda g, x, y: g.Mul(g.Mul(x, g.Sigmoid(x)), y),
    ),
    Case(
        name="rotary 32x1024x128", given=(f32(32, 1024, 128), f32(1024, 64), f32(1024, 64)),
        jax=lambda x, c, s: jnp.concatenate(
            [x[..., :64] * c - x[..., 64:] * s, x[..., 64:] * c + x[..., :64] * s], -1),
        torch=lambda t, x, c, s: t.cat(
            [x[..., :64] * c - x[..., 64:] * s, x[..., 64:] * c + x[..., :64] * s], -1),
    ),
    Case(
        name="transpose 1024x1024", given=(f32(1024, 1024),),
        jax=lambda x: x.T,
        torch=lambda t, x: x.T.contiguous(),
        onnx=lambda g, x: g.Transpose(x, perm=[1, 0]),
    ),
    Case(
        name="12x128x64 to 128x12x64", given=(f32(12, 128, 64),),
        jax=lambda x: x.transpose(1, 0, 2),
        torch=lambda t, x: x.transpose(0, 1).contiguous(),
        onnx=lambda g, x: g.Transpose(x, perm=[1, 0, 2]),
    ),
    Case(
        name="NCHW to NHWC 8x64x56x56", given=(f32(8, 64, 56, 56),),
        jax=lambda x: x.transpose(0, 2, 3, 1),
        torch=lambda t, x: x.permute(0, 2, 3, 1).contiguous(),
        onnx=lambda g, x: g.Transpose(x, perm=[0, 2, 3, 1]),
    ),
    Case(
        name="NHWC to NCHW bf16 8x56x56x64", given=(bf16(8, 56, 56, 64),),
        jax=lambda x: x.transpose(0, 3, 1, 2),
        torch=lambda t, x: x.permute(0, 3, 1, 2).contiguous(),
    ),
    Case(
        name="transpose u8 2048x2048", given=(Given("u8", (2048, 2048)),),
        jax=lambda x: x.T,
        torch=lambda t, x: x.T.contiguous(),
        onnx=lambda g, x: g.Transpose(x, perm=[1, 0]),
    ),
    Case(
        name="x * reversed(y) 512x4096", given=(f32(512, 4096), f32(512, 4096)),
        jax=lambda x, y: x * y[:, ::-1],
        torch=lambda t, x, y: x * y.flip(1),
    ),
    Case(
        name="window of a cache at a place 8x4096x128",
        given=(f32(8, 4096, 128), Given("s32", (), lambda rng, shape: rng.integers(7, 9, shape))),
        jax=lambda x, at: jax.lax.dynamic_slice_in_dim(x, at, 2048, 1) * 2.0,
    ),
)  # fmt: skip

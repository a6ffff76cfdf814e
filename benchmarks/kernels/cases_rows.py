"""Rows: softmax, norms, cross entropy, batch norm in training, and their gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.kernels.case import Case, Given, f32, numbers_below

SHAPES = ((512, 1024), (8192, 768), (64, 32000))


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def cross_entropy(x: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1)
    return -chosen.mean()


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> tuple[jax.Array, ...]:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias, mean, variance


def pulled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gradients of all arguments but the last, which is the gradient of the result."""
    return lambda *given: jax.vjp(function, *given[:-1])[1](given[-1])


def torch_pulled(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(t: Any, *given: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in given[:-1]]
        return t.autograd.grad(function(t, *leaves), leaves, given[-1])

    return call


def torch_rms_norm(t: Any, x: Any, scale: Any) -> Any:
    return t.nn.functional.rms_norm(x, x.shape[-1:], scale, 1e-5)


def torch_layer_norm(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.layer_norm(x, x.shape[-1:], scale, bias, 1e-5)


def torch_batch_norm(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return t.nn.functional.batch_norm(
        x.permute(0, 3, 1, 2), None, None, scale, bias, training=True
    ).permute(0, 2, 3, 1)


def torch_batch_norm_and_statistics(t: Any, x: Any, scale: Any, bias: Any) -> Any:
    return (
        torch_batch_norm(t, x, scale, bias), x.mean((0, 1, 2)), x.var((0, 1, 2), correction=0),
    )  # fmt: skip


def torch_cross_entropy(t: Any, x: Any, labels: Any) -> Any:
    return t.nn.functional.cross_entropy(x, labels.long())


def torch_cross_entropy_gradient(t: Any, x: Any, labels: Any) -> Any:
    leaf = x.detach().requires_grad_()
    return t.autograd.grad(torch_cross_entropy(t, leaf, labels), leaf)[0]


def _forward(rows: int, columns: int) -> tuple[Case, ...]:
    x, one, size = f32(rows, columns), f32(columns), f"{rows}x{columns}"
    return (
        Case(
            name=f"softmax {size}", given=(x,), jax=jax.nn.softmax,
            torch=lambda t, x: t.softmax(x, -1), onnx=lambda g, x: g.Softmax(x, axis=-1),
            goal_s=0.072e-3 if (rows, columns) == (512, 1024) else None,
        ),
        Case(
            name=f"log softmax {size}", given=(x,), jax=jax.nn.log_softmax,
            torch=lambda t, x: t.log_softmax(x, -1), onnx=lambda g, x: g.LogSoftmax(x, axis=-1),
        ),
        Case(
            name=f"layer norm {size}", given=(x, one, one), jax=layer_norm, torch=torch_layer_norm,
            onnx=lambda g, x, s, b: g.LayerNormalization(x, s, b, axis=-1, epsilon=1e-5),
            goal_s=0.056e-3 if (rows, columns) == (512, 1024) else None,
        ),
        Case(
            name=f"RMS norm {size}", given=(x, one), jax=rms_norm, torch=torch_rms_norm,
            onnx=lambda g, x, s: g.Mul(
                g.Div(x, g.Sqrt(g.Add(g.ReduceMean(g.Mul(x, x), [-1]), 1e-5))), s),
        ),
    )  # fmt: skip


def _backward(rows: int, columns: int) -> tuple[Case, ...]:
    x, one, size = f32(rows, columns), f32(columns), f"{rows}x{columns}"
    return (
        Case(
            name=f"softmax gradient {size}", given=(x, x), jax=pulled(jax.nn.softmax),
            torch=torch_pulled(lambda t, x: t.softmax(x, -1)),
        ),
        Case(
            name=f"log softmax gradient {size}", given=(x, x), jax=pulled(jax.nn.log_softmax),
            torch=torch_pulled(lambda t, x: t.log_softmax(x, -1)),
        ),
        Case(
            name=f"layer norm gradient {size}", given=(x, one, one, x), jax=pulled(layer_norm),
            torch=torch_pulled(torch_layer_norm), tolerance=1e-3,
        ),
        Case(
            name=f"RMS norm gradient {size}", given=(x, one, x), jax=pulled(rms_norm),
            torch=torch_pulled(torch_rms_norm), tolerance=1e-3,
        ),
    )  # fmt: skip


_LABELS = Given("s32", (512,), numbers_below(32000))
_IMAGES, _CHANNELS = f32(32, 56, 56, 64), f32(64)
_OTHERS = (
    Case(
        name="cross entropy 512x32000", given=(f32(512, 32000), _LABELS), jax=cross_entropy,
        torch=torch_cross_entropy,
    ),
    Case(
        name="cross entropy gradient 512x32000", given=(f32(512, 32000), _LABELS),
        jax=jax.grad(cross_entropy), torch=torch_cross_entropy_gradient,
    ),
    Case(
        name="batch norm training 32x56x56x64", given=(_IMAGES, _CHANNELS, _CHANNELS),
        jax=batch_norm, torch=torch_batch_norm_and_statistics, tolerance=1e-3,
    ),
    Case(
        name="batch norm gradient 32x56x56x64", given=(_IMAGES, _CHANNELS, _CHANNELS, _IMAGES),
        jax=pulled(lambda *given: batch_norm(*given)[0]), torch=torch_pulled(torch_batch_norm),
        tolerance=1e-3,
    ),
    Case(
        name="group norm 8x32x32x256 of 32",
        given=(f32(8, 32, 32, 256), f32(256), f32(256)),
        jax=lambda x, s, b: (
            lambda y: (y - y.mean((1, 2, 4), keepdims=True))
            * jax.lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)
        )(x.reshape(8, 32, 32, 32, 8)).reshape(x.shape) * s + b,
        torch=lambda t, x, s, b: t.nn.functional.group_norm(
            x.permute(0, 3, 1, 2), 32, s, b, 1e-5).permute(0, 2, 3, 1),
        tolerance=1e-3,
    ),
)  # fmt: skip

CASES = (
    *(case for shape in SHAPES for case in _forward(*shape)),
    *(case for shape in SHAPES[:2] for case in _backward(*shape)),
    *_OTHERS,
)

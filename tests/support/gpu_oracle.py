"""What kernels for GPUs must compute, by NumPy in f64."""

from collections.abc import Sequence

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.rows import EPSILON
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)

Array = NDArray[np.float64]


def inputs(kernel: GpuKernel, seed: int = 0) -> list[jax.Array]:
    """Random operands in the kernel's types."""
    random = np.random.default_rng(seed)
    return [
        jax.numpy.asarray(random.standard_normal(o.shape), dtype=o.dtype) for o in operands(kernel)
    ]


def error(
    kernel: GpuKernel, sketch: str, knobs: dict[str, int], values: Sequence[jax.Array]
) -> float:
    """Norm of what an interpreted schedule is off, over the norm of what is right."""
    function = jax.jit(build(kernel, sketch, knobs, interpret=True))
    made = np.asarray(function(*values), dtype=np.float64)
    right = expected(kernel, [np.asarray(v, dtype=np.float64) for v in values])
    assert made.shape == right.shape
    return float(np.linalg.norm(made - right) / np.linalg.norm(right))


def expected(kernel: GpuKernel, values: Sequence[Array]) -> Array:
    match kernel:
        case GpuProduct():
            return _epilogue(kernel, values[0] @ values[1], values[2:])
        case GpuRows():
            return _rows(kernel, *values)
        case GpuAttention():
            return _attention(kernel, *values)
        case GpuConvolution():
            return _epilogue(kernel, _convolution(kernel, *values[:2]), values[2:])


def _epilogue(product: GpuProduct | GpuConvolution, sums: Array, bias: Sequence[Array]) -> Array:
    if product.epilogue == "none":
        return sums
    biased = sums + bias[0]
    if product.epilogue == "bias_relu":
        return np.maximum(biased, 0)
    return 0.5 * biased * (1 + erf(biased / 2**0.5)) if "gelu" in product.epilogue else biased


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _rows(rows: GpuRows, x: Array, *parameters: Array) -> Array:
    if rows.operation == "softmax":
        return _softmax(x)
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt(x.var(axis=1, keepdims=True) + EPSILON)
    return np.asarray(centred / deviation * parameters[0] + parameters[1])


def _attention(attention: GpuAttention, q: Array, k: Array, v: Array) -> Array:
    k, v = (np.repeat(x, attention.group, axis=0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) / attention.depth**0.5
    if attention.causal:
        seen = np.tri(attention.queries, attention.keys, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    return np.asarray(_softmax(scores) @ v)


def _convolution(c: GpuConvolution, images: Array, weights: Array) -> Array:
    around = ((0, 0), (c.padding, c.padding), (c.padding, c.padding), (0, 0))
    padded = np.pad(images, around)
    result = np.zeros((c.batch, c.out, c.out, c.groups, c.group_features))
    reach = c.stride * (c.out - 1) + 1
    for y in range(c.window):
        for x in range(c.window):
            top, left = y * c.dilation, x * c.dilation
            seen = padded[:, top : top + reach : c.stride, left : left + reach : c.stride]
            apart = seen.reshape(*seen.shape[:3], c.groups, c.group_channels)
            by_group = weights[y, x].reshape(c.group_channels, c.groups, c.group_features)
            result += np.einsum("nyxgk,kgf->nyxgf", apart, by_group)
    return result.reshape(c.batch, c.out, c.out, c.features)

"""Builds a function of JAX arrays from a kernel and a config."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

import jax

from hlotune.codegen.pallas.elements import struct
from hlotune.schedules.errors import BuildError
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu.convolutions import as_product

Function = Callable[..., Any]
"""A function from operands to a result, or, for stages over rows, to a tuple of results."""
BUILDERS = {
    "triton_product": "products",
    "triton_rows": "rows",
    "triton_streamed_rows": "rows",
    "triton_long_rows": "rows",
    "triton_map": "stages",
    "triton_stages": "stages",
    "triton_long_stages": "stages",
    "triton_attention": "attention",
    "triton_convolution": "convolutions",
    "triton_merged_taps": "convolutions",
    "triton_padded_windows": "padded_windows",
    "hopper_product": "hopper_products",
    "hopper_ring_product": "hopper_ring_products",
    "hopper_attention": "hopper_attention",
    "hopper_convolution": "hopper_convolutions",
    "tpu_product": "tpu",
    "tpu_attention": "tpu_attention",
    "tpu_rows": "tpu",
    "tpu_stages": "tpu_stages",
}
"""For each sketch: the module of this package with the function that builds it."""
HOPPER_JAX = (0, 11)
"""The first version of JAX with the kernels of warpgroups that are used here."""


def build(
    kernel: AnyGpuKernel, sketch: str, knobs: dict[str, int], interpret: bool = False
) -> Function:
    """A function of the kernel's operands; with `interpret`, the processor interprets it.

    Raises:
        BuildError: where the sketch needs a newer JAX.
    """
    if sketch.startswith("hopper_") and jax.__version_info__[:2] < HOPPER_JAX:
        wanted = ".".join(map(str, HOPPER_JAX))
        raise BuildError(f"{sketch} needs jax {wanted} or newer, and this is {jax.__version__}")
    builder = getattr(importlib.import_module(f"{__package__}.{BUILDERS[sketch]}"), sketch)
    if isinstance(kernel, GpuConvolution) and sketch.endswith("_product"):
        return functools.partial(_convolved, builder, kernel, knobs, interpret)
    return functools.partial(builder, kernel, knobs, interpret)


def _convolved(
    builder: Function,
    c: GpuConvolution,
    knobs: dict[str, int],
    interpret: bool,
    images: jax.Array,
    weights: jax.Array,
    *bias: jax.Array,
) -> jax.Array:
    """Computes a convolution that is a product, by the builder of a product."""
    p = as_product(c)
    rows = images.reshape(p.m, p.k), weights.reshape(p.k, p.n)
    made: jax.Array = builder(p, knobs, interpret, *rows, *bias)
    return made.reshape(c.batch, c.out, c.out, c.features)


def operands(kernel: AnyGpuKernel) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes and types of a kernel's operands."""
    if isinstance(kernel, GpuStages):
        return tuple(struct(t.shape, t.dtype) for t in kernel.arguments)
    tail = kernel.scores if isinstance(kernel, GpuAttention) else None
    tail = kernel.tail if isinstance(kernel, GpuProduct | GpuConvolution) else tail
    read = tail.tensors if tail is not None else ()
    own = (struct(shape, kernel.element) for shape in _shapes(kernel))
    return (*own, *(struct(t.shape, t.dtype) for t in read))


def _shapes(kernel: GpuKernel) -> tuple[tuple[int, ...], ...]:
    match kernel:
        case GpuProduct():
            batch = (kernel.batch,) if kernel.batch > 1 else ()
            bias = () if kernel.epilogue == "none" else ((kernel.n,),)
            return (*batch, kernel.m, kernel.k), (*batch, kernel.k, kernel.n), *bias
        case GpuRows():
            columns = (kernel.columns,)
            parameters = (columns, columns) if kernel.operation == "layer_norm" else ()
            return (kernel.rows, kernel.columns), *parameters
        case GpuAttention():
            a = kernel
            keys, values = ((a.key_heads, a.keys, width) for width in (a.depth, a.features))
            return (a.heads, a.queries, a.depth), keys, values
        case GpuConvolution():
            c = kernel
            window = (c.window, c.window, c.group_channels, c.features)
            bias = () if c.epilogue == "none" else ((c.features,),)
            return (c.batch, c.size, c.size, c.channels), window, *bias

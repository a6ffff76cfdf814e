"""The operations in JAX: what hlotune tunes and XLA compiles, and arrays to call it with."""

from dataclasses import replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from numpy.typing import NDArray

from benchmarks.operations import Array, Convolution, Element, Operation, Product, Shape

ArrayLike = jax.Array | NDArray[Any]

TYPES: dict[Element, np.dtype[np.generic]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}
RESULTS: dict[Element, np.dtype[np.generic]] = {**TYPES, "int8": np.dtype(np.int32)}
"""Sums of bytes are kept whole."""


def computed(operation: Operation, weights: ArrayLike, x: ArrayLike) -> jax.Array:
    if isinstance(operation, Product):
        left = jnp.swapaxes(x, -1, -2) if operation.swapped == "left" else x
        right = jnp.swapaxes(weights, -1, -2) if operation.swapped == "right" else weights
        return jnp.matmul(left, right, preferred_element_type=RESULTS[operation.element])
    assert isinstance(operation, Convolution)
    if operation.direction == "forward":
        return _convolved(operation, weights, x)
    return _gradient(operation, weights, x)


def _gradient(operation: Convolution, weights: ArrayLike, x: ArrayLike) -> jax.Array:
    forward = replace(operation, direction="forward")
    kernel, image = (_shaped(shape, operation.element) for shape in operation.forward_shapes)
    if operation.direction == "input_gradient":
        (found,) = jax.linear_transpose(lambda i: _convolved(forward, weights, i), image)(x)
    else:
        (found,) = jax.linear_transpose(lambda w: _convolved(forward, w, x), kernel)(weights)
    return found  # type: ignore[no-any-return]


def _convolved(operation: Convolution, weights: ArrayLike, image: ArrayLike) -> jax.Array:
    space = operation.layout.strip("N").strip("C")
    kernel = f"{space}IO" if operation.channels == "last" else f"OI{space}"
    spread, steps = (operation.stride, 1) if operation.transposed else (1, operation.stride)
    reach = operation.dilation * (operation.window - 1)
    border = reach - operation.padding if operation.transposed else operation.padding
    return lax.conv_general_dilated(
        jnp.asarray(image),
        jnp.asarray(weights),
        (steps,) * len(space),
        [(border, border)] * len(space),
        lhs_dilation=(spread,) * len(space),
        rhs_dilation=(operation.dilation,) * len(space),
        dimension_numbers=(operation.layout, kernel, operation.layout),
        feature_group_count=operation.groups,
        preferred_element_type=RESULTS[operation.element],
    )


def result_of(operation: Operation) -> jax.ShapeDtypeStruct:
    """Shape and element type of what it computes."""
    weights, x = (_shaped(shape, operation.element) for shape in operation.shapes)
    return jax.eval_shape(lambda w, y: computed(operation, w, y), weights, x)  # type: ignore[no-any-return]


def _shaped(shape: Shape, element: Element) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, TYPES[element])  # type: ignore[no-untyped-call]


def least_bytes(operation: Operation) -> int:
    """Both operands read once and the result written once."""
    read = sum(map(prod, operation.shapes)) * TYPES[operation.element].itemsize
    written: int = prod(result_of(operation).shape) * RESULTS[operation.element].itemsize
    return read + written


def inputs_of(operation: Operation, seed: int = 0) -> tuple[Array, Array]:
    """Random weights and input: normal, or whole numbers over the range of the type."""
    rng = np.random.default_rng(seed)
    weights, x = (_random(rng, shape, operation.element) for shape in operation.shapes)
    return weights, x


def _random(rng: np.random.Generator, shape: Shape, element: Element) -> Array:
    if element == "int8":
        return rng.integers(-127, 128, size=shape, dtype=np.int8)
    return rng.normal(size=shape).astype(TYPES[element])

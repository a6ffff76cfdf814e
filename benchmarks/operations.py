"""Convolutions and products as values: extents in, a function of two arrays out.

The first array stands for the weights wherever the operation has any.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, Protocol

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax
from numpy.typing import NDArray

Array = NDArray[Any]
Element = Literal["f32", "bf16", "int8"]
Channels = Literal["last", "first"]
Direction = Literal["forward", "input_gradient", "weight_gradient"]
ArrayLike = jax.Array | NDArray[Any]
Shape = tuple[int, ...]

TYPES: dict[Element, np.dtype[np.generic]] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}
RESULTS: dict[Element, np.dtype[np.generic]] = {**TYPES, "int8": np.dtype(np.int32)}
"""Sums of bytes are kept whole."""


class Operation(Protocol):
    """What a case computes; all shapes are of weights and input."""

    @property
    def element(self) -> Element: ...
    @property
    def family(self) -> str: ...
    @property
    def shapes(self) -> tuple[Shape, Shape]: ...
    @property
    def has_weights(self) -> bool:
        """Whether the first operand can be a constant: that of a weight gradient cannot."""

    @property
    def flops(self) -> int:
        """Operations without padding and inserted zeros, a multiply-add being two."""

    def __call__(self, weights: ArrayLike, x: ArrayLike) -> jax.Array: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """(..., m, k) by (..., k, n)."""

    m: int
    k: int
    n: int
    batch: Shape = ()
    element: Element = "f32"

    @property
    def family(self) -> str:
        return "gemm"

    @property
    def has_weights(self) -> bool:
        """Both operands of a batched product are results of other kernels, as in attention."""
        return not self.batch

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        return (*self.batch, self.k, self.n), (*self.batch, self.m, self.k)

    @property
    def flops(self) -> int:
        return 2 * prod(self.batch) * self.m * self.k * self.n

    def __call__(self, weights: ArrayLike, x: ArrayLike) -> jax.Array:
        return jnp.matmul(x, weights, preferred_element_type=RESULTS[self.element])


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """Of one image of 1 to 3 dimensions, or one of its gradients.

    A transposed convolution puts `stride - 1` zeros between the elements of its image; `padding`
    is that of the convolution which it transposes, as frameworks have it.
    """

    size: Shape
    inputs: int
    outputs: int
    window: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    channels: Channels = "last"
    direction: Direction = "forward"
    element: Element = "f32"

    @property
    def family(self) -> str:
        found = {
            "backward": self.direction != "forward",
            "transposed": self.transposed,
            "depthwise": 1 < self.groups == self.inputs == self.outputs,
            "grouped": self.groups > 1,
            "dilated": self.dilation > 1,
            "conv1d": len(self.size) == 1,
            "conv3d": len(self.size) == 3,
        }
        return next((name for name, holds in found.items() if holds), "conv2d")

    @property
    def has_weights(self) -> bool:
        return self.direction != "weight_gradient"

    @property
    def layout(self) -> str:
        """`NHWC`, `NCW`, ..."""
        space = "DHW"[3 - len(self.size) :]
        return f"N{space}C" if self.channels == "last" else f"NC{space}"

    @property
    def result_size(self) -> Shape:
        """Of the image that the forward operation makes."""
        reach = self.dilation * (self.window - 1) + 1
        if self.transposed:
            return tuple((n - 1) * self.stride + reach - 2 * self.padding for n in self.size)
        return tuple((n + 2 * self.padding - reach) // self.stride + 1 for n in self.size)

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """Weights and image; for a gradient, the result's gradient is in the place of one."""
        result = self._image(self.result_size, self.outputs)
        forward = self.forward_shapes
        return {
            "forward": forward,
            "input_gradient": (forward[0], result),
            "weight_gradient": (result, forward[1]),
        }[self.direction]

    @property
    def forward_shapes(self) -> tuple[Shape, Shape]:
        taps, inputs = (self.window,) * len(self.size), self.inputs // self.groups
        last = (*taps, inputs, self.outputs)
        first = (self.outputs, inputs, *taps)
        image = self._image(self.size, self.inputs)
        return last if self.channels == "last" else first, image

    def _image(self, size: Shape, channels: int) -> Shape:
        return (1, *size, channels) if self.channels == "last" else (1, channels, *size)

    @property
    def flops(self) -> int:
        """The same in all directions: each product of an element and a tap is there once."""
        taps = prod(map(self._real_taps, self.size, self.result_size))
        return 2 * taps * self.inputs * self.outputs // self.groups

    def _real_taps(self, size: int, result: int) -> int:
        """Pairs of a place and a tap, along one dimension, that meet an element of the image."""
        places, ends = (size, result) if self.transposed else (result, size)
        at = np.arange(places)[:, None] * self.stride - self.padding
        reached = at + np.arange(self.window) * self.dilation
        return int(np.count_nonzero((reached >= 0) & (reached < ends)))

    def __call__(self, weights: ArrayLike, x: ArrayLike) -> jax.Array:
        if self.direction == "forward":
            return self._forward(weights, x)
        forward = replace(self, direction="forward")
        kernel, image = (_shaped(shape, self.element) for shape in self.forward_shapes)
        if self.direction == "input_gradient":
            (found,) = jax.linear_transpose(lambda i: forward(weights, i), image)(x)
        else:
            (found,) = jax.linear_transpose(lambda w: forward(w, x), kernel)(weights)
        return found  # type: ignore[no-any-return]

    def _forward(self, weights: ArrayLike, image: ArrayLike) -> jax.Array:
        space = self.layout.strip("N").strip("C")
        kernel = f"{space}IO" if self.channels == "last" else f"OI{space}"
        spread, steps = (self.stride, 1) if self.transposed else (1, self.stride)
        reach = self.dilation * (self.window - 1)
        border = reach - self.padding if self.transposed else self.padding
        return lax.conv_general_dilated(
            jnp.asarray(image),
            jnp.asarray(weights),
            (steps,) * len(space),
            [(border, border)] * len(space),
            lhs_dilation=(spread,) * len(space),
            rhs_dilation=(self.dilation,) * len(space),
            dimension_numbers=(self.layout, kernel, self.layout),
            feature_group_count=self.groups,
            preferred_element_type=RESULTS[self.element],
        )


def result_of(operation: Operation) -> jax.ShapeDtypeStruct:
    """Shape and element type of what it computes."""
    weights, x = (_shaped(shape, operation.element) for shape in operation.shapes)
    return jax.eval_shape(lambda w, y: operation(w, y), weights, x)  # type: ignore[no-any-return]


def _shaped(shape: Shape, element: Element) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, TYPES[element])  # type: ignore[no-untyped-call]


def least_bytes(operation: Operation) -> int:
    """Both operands read once and the result written once."""
    result = result_of(operation)
    read = sum(map(prod, operation.shapes)) * TYPES[operation.element].itemsize
    written: int = prod(result.shape) * RESULTS[operation.element].itemsize
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

"""Convolutions and products as values: their extents, and what follows from them.

Each takes two arrays; the first stands for the weights wherever the operation has any.  Nothing is
imported here but NumPy: other libraries' environments read this file too.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Element = Literal["f32", "bf16", "int8"]
PEAK_NAMES: dict[Element, str] = {"f32": "f32", "bf16": "bf16", "int8": "i8"}
"""Types of operands, as measured peaks name them."""
Channels = Literal["last", "first"]
Direction = Literal["forward", "input_gradient", "weight_gradient"]
Shape = tuple[int, ...]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """(..., m, k) by (..., k, n); a swapped side comes with its last two dimensions exchanged."""

    m: int
    k: int
    n: int
    batch: Shape = ()
    swapped: Literal["", "left", "right"] = ""
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
        right = (self.n, self.k) if self.swapped == "right" else (self.k, self.n)
        left = (self.k, self.m) if self.swapped == "left" else (self.m, self.k)
        return (*self.batch, *right), (*self.batch, *left)

    @property
    def flops(self) -> int:
        return 2 * prod(self.batch) * self.m * self.k * self.n


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of images of 1 to 3 dimensions, or one of its gradients.

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
    batch: int = 1
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
        """The size of the image that the forward operation makes."""
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
        last = self.channels == "last"
        return (self.batch, *size, channels) if last else (self.batch, channels, *size)

    @property
    def flops(self) -> int:
        """The same in all directions: each product of an element and a tap is there once."""
        taps = prod(map(self._real_taps, self.size, self.result_size))
        return 2 * self.batch * taps * self.inputs * self.outputs // self.groups

    def _real_taps(self, size: int, result: int) -> int:
        """Pairs of a place and a tap, along one dimension, that meet an element of the image."""
        places, ends = (size, result) if self.transposed else (result, size)
        at = np.arange(places)[:, None] * self.stride - self.padding
        reached = at + np.arange(self.window) * self.dilation
        return int(np.count_nonzero((reached >= 0) & (reached < ends)))

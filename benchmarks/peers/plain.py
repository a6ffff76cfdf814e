"""Convolutions as most libraries have them: channels before the image, three kinds.

convolution   weights (outputs, inputs / groups, *window), image (1, inputs, *size)
transposed    weights (inputs, outputs, *window); its taps run against those of the forward one
weights       of the result's gradient and the image: the gradient of a convolution's weights
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.operations import Array, Convolution, Shape

Kind = Literal["convolution", "transposed", "weights"]


@dataclass(frozen=True, slots=True)
class Plain:
    """The same convolution on arrays in these libraries' order."""

    kind: Kind
    operation: Convolution
    weights: Array
    x: Array

    @property
    def rank(self) -> int:
        """Dimensions of the image."""
        return len(self.operation.size)

    @property
    def strides(self) -> Shape:
        return (self.operation.stride,) * self.rank

    @property
    def padding(self) -> Shape:
        return (self.operation.padding,) * self.rank

    @property
    def dilations(self) -> Shape:
        return (self.operation.dilation,) * self.rank

    @property
    def missing(self) -> Shape:
        """Elements at the end of a transposed result that no tap reaches, `output_padding`."""
        o = self.operation
        if o.transposed:
            return (0,) * self.rank
        reach = o.dilation * (o.window - 1) + 1
        return tuple(
            size - ((result - 1) * o.stride + reach - 2 * o.padding)
            for size, result in zip(o.size, o.result_size, strict=True)
        )


def plain(operation: Convolution, weights: Array, x: Array) -> Plain:
    """The plain convolution of arrays in the operation's own order; the arrays of the result are
    contiguous.
    """
    kind, first = _kind(operation), _channels_first(operation, x)
    if kind == "weights":
        moved = _channels_first(operation, weights)
    else:
        moved = _outputs_first(operation, weights)
        if operation.transposed:
            taps = tuple(range(2, moved.ndim))
            moved = np.flip(moved.swapaxes(0, 1), taps)
    return Plain(kind, operation, np.ascontiguousarray(moved), np.ascontiguousarray(first))


def restored(operation: Convolution, result: Array) -> Array:
    """A library's result in the operation's own order."""
    if operation.channels == "first":
        return result
    if operation.direction == "weight_gradient":
        return np.moveaxis(result, (0, 1), (-1, -2))
    return np.moveaxis(result, 1, -1)


def _kind(operation: Convolution) -> Kind:
    if operation.direction == "weight_gradient":
        return "weights"
    is_transposed = operation.transposed or operation.direction == "input_gradient"
    return "transposed" if is_transposed else "convolution"


def _channels_first(operation: Convolution, image: Array) -> Array:
    return image if operation.channels == "first" else np.moveaxis(image, -1, 1)


def _outputs_first(operation: Convolution, weights: Array) -> Array:
    return weights if operation.channels == "first" else np.moveaxis(weights, (-1, -2), (0, 1))

"""One box of a convolution: which inputs and taps it reads, and its sums of products."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle.bounded import Bounded
from hlotune.hlo.oracle.boxes import Run, covering, extents, run
from hlotune.hlo.oracle.products import Products, factor
from hlotune.hlo.oracle.request import Request


class Convolution:
    """One box of a convolution, in the order (group, batch, spatial..., feature).

    Feature groups split input features, output features and the kernel's outputs; batch groups
    split the input's batch instead.  Either way each group is a convolution of its own.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        number = request.number
        self.inputs = (
            number("input_batch_dimension"),
            *request.ints("input_spatial_dimensions"),
            number("input_feature_dimension"),
        )
        self.kernel = (
            *request.ints("kernel_spatial_dimensions"),
            number("kernel_input_feature_dimension"),
            number("kernel_output_feature_dimension"),
        )
        self.outputs = (
            number("output_batch_dimension"),
            *request.ints("output_spatial_dimensions"),
            number("output_feature_dimension"),
        )
        self.feature_groups, self.batch_groups = (
            number("feature_group_count"),
            number("batch_group_count"),
        )
        groups = self.feature_groups * self.batch_groups
        kernel_shape, box = request.type(1).shape, request.box
        self.spatial = tuple(box[d] for d in self.outputs[1:-1])
        self.batch = box[self.outputs[0]]
        self.window = tuple(kernel_shape[d] for d in self.kernel[:-2])
        self.channels = kernel_shape[self.kernel[-2]]
        self.per_group = kernel_shape[self.kernel[-1]] // groups
        low, high = box[self.outputs[-1]]
        self.features = (low, high)
        self.groups = (low // self.per_group, -(-high // self.per_group)) if groups > 1 else (0, 1)

    def runs(self) -> list[list[Run | None]]:
        """For each spatial dimension and tap, the outputs that read a real input."""
        strides, padding = self.request.ints("window_strides"), self.request.pairs("padding")
        holes, spread = self.request.ints("lhs_dilation"), self.request.ints("rhs_dilation")
        shape = self.request.type(0).shape
        return [
            [
                run(
                    low,
                    high,
                    strides[d],
                    tap * spread[d] - padding[d][0],
                    holes[d],
                    shape[self.inputs[d + 1]],
                )
                for tap in range(self.window[d])
            ]
            for d, (low, high) in enumerate(self.spatial)
        ]

    def weights(self) -> Bounded:
        """(taps..., group, 1, channels, features), with the window reversed where it is."""
        first, last = self.groups
        grouped = self.feature_groups * self.batch_groups > 1
        features = (first * self.per_group, last * self.per_group) if grouped else self.features
        shape = self.request.type(1).shape
        box: list[tuple[int, int]] = [(0, n) for n in shape]
        box[self.kernel[-1]] = features
        reversal = self.request.ints("window_reversal")
        flipped = tuple(d for d, back in enumerate(reversal) if back)

        def arrange(x: NDArray[Any]) -> NDArray[Any]:
            x = np.flip(x.transpose(self.kernel), flipped)
            x = x.reshape(*self.window, self.channels, last - first, x.shape[-1] // (last - first))
            return np.moveaxis(x, -2, -3)[..., None, :, :]

        return self.request.operand(1, tuple(box)).move(arrange)

    def patches(self, ranges: Sequence[tuple[int, int]]) -> Bounded:
        """(group, batch, spatial..., channels) of the input, in the given spatial ranges."""
        first, last = self.groups
        shape = self.request.type(0).shape
        box: list[tuple[int, int]] = [(0, n) for n in shape]
        box[self.inputs[0]] = self.batch if self.batch_groups == 1 else (0, shape[self.inputs[0]])
        box[self.inputs[-1]] = (first * self.channels, last * self.channels)
        if self.batch_groups > 1:
            box[self.inputs[-1]] = (0, self.channels)
        for d, r in zip(self.inputs[1:-1], ranges, strict=True):
            box[d] = r
        sizes = [high - low for low, high in ranges]

        def arrange(x: NDArray[Any]) -> NDArray[Any]:
            x = x.transpose(self.inputs)
            if self.batch_groups > 1:
                x = x.reshape(
                    self.batch_groups, x.shape[0] // self.batch_groups, *sizes, self.channels
                )
                return x[first:last, slice(*self.batch)]
            x = x.reshape(*x.shape[:-1], last - first, self.channels)
            return np.moveaxis(x, -2, 0)

        return self.request.operand(0, tuple(box)).move(arrange)

    def evaluate(self) -> Bounded:
        runs, weights = self.runs(), self.weights()
        ranges = [covering(line) for line in runs]
        sizes = (
            self.groups[1] - self.groups[0],
            self.batch[1] - self.batch[0],
            *extents(self.spatial),
        )
        sums = Products(
            (*sizes, weights.shape[-1]),
            prod(self.window) * self.channels,
            self.request.result.dtype,
        )
        taps = factor(weights, sums.floating)
        reached = all(low < high for low, high in ranges)
        patches = factor(self.patches(ranges), sums.floating) if reached else None
        for tap in product(*(range(n) for n in self.window)):
            here = [line[t] for line, t in zip(runs, tap, strict=True)]
            real = [r for r in here if r is not None]
            if patches is not None and len(real) == len(here):
                sources = tuple(r.inputs(low) for r, (low, _) in zip(real, ranges, strict=True))
                rows = patches[(slice(None), slice(None), *sources)].move(_flat_rows)
                place = (slice(None), slice(None), *(r.outputs for r in real))
                sums.add(rows, taps[tap].move(lambda x: x[:, 0]), place)
        return sums.finish().move(self.arranged)

    def arranged(self, x: NDArray[Any]) -> NDArray[Any]:
        """Moves values from (group, batch, spatial..., feature) to the box that was asked for."""
        first = self.groups[0] * self.per_group
        low, high = self.features
        columns = (
            slice(low - first, high - first)
            if self.feature_groups * self.batch_groups > 1
            else slice(None)
        )

        x = np.moveaxis(x, 0, -2)
        x = x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])[..., columns]
        return x.transpose(np.argsort(self.outputs))


def _flat_rows(x: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(x).reshape(x.shape[0], prod(x.shape[1:-1]), x.shape[-1])

"""One box of a convolution: which inputs and taps it reads, and its sums of products."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle.bounded import Bounded
from hlotune.hlo.oracle.boxes import Run, covering, extents, run
from hlotune.hlo.oracle.products import Factor, Products, factor
from hlotune.hlo.oracle.request import Request

STEP_ELEMENTS = 20_000
"""A product of small matrices takes as long as moving so many elements."""
ROW_ELEMENTS = 1 << 22
"""How many elements of patches are multiplied together where outputs are few."""


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

        return self.request.factor(1, tuple(box)).move(arrange)

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

        return self.request.factor(0, tuple(box)).move(arrange)

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
        reached = all(low < high for low, high in ranges)
        if reached:
            taps = factor(weights, sums.floating)
            patches = factor(self.patches(ranges), sums.floating)
            add = self._by_output if self.has_few_outputs(weights.shape[-1]) else self._by_tap
            add(sums, patches, taps, [low for low, _ in ranges])
        return sums.finish().move(self.arranged)

    def has_few_outputs(self, features: int) -> bool:
        """Whether it moves fewer elements to go through the outputs than through the taps."""
        outputs, taps = prod(extents(self.spatial)), prod(self.window)
        batch = self.batch[1] - self.batch[0]
        each_tap = STEP_ELEMENTS + outputs * batch * (self.channels + 2 * features)
        each_output = STEP_ELEMENTS + taps * self.channels * (batch + features)
        return outputs * each_output < taps * each_tap

    def _by_tap(
        self, sums: Products, patches: Factor, taps: Factor, origins: Sequence[int]
    ) -> None:
        """Adds a product of matrices for each tap, over all outputs that it has an input for."""
        runs = self.runs()
        for tap in product(*(range(n) for n in self.window)):
            here = [line[t] for line, t in zip(runs, tap, strict=True)]
            real = [r for r in here if r is not None]
            if len(real) == len(here):
                self.request.require_time()
                sources = tuple(r.inputs(low) for r, low in zip(real, origins, strict=True))
                rows = patches[(slice(None), slice(None), *sources)].move(_flat_rows)
                place = (slice(None), slice(None), *(r.outputs for r in real))
                sums.add(rows, taps[tap].move(lambda x: x[:, 0]), place)

    def _by_output(
        self, sums: Products, patches: Factor, taps: Factor, origins: Sequence[int]
    ) -> None:
        """Adds a few products of matrices for each output position, over all taps that have an
        input there: the gradient of a weight has few outputs and a tap for each pixel.
        """
        channels, lines = patches.value.shape[-1], self.tap_runs()
        rows = patches.value.shape[1] * channels
        strides = patches.value.strides
        by_terms = _CHANNELS_FIRST if strides[-1] > strides[2] else _TAPS_FIRST
        for place in product(*(range(high - low) for low, high in self.spatial)):
            here = [line[at] for line, at in zip(lines, place, strict=True)]
            real = [r for r in here if r is not None]
            if len(real) < len(here):
                continue
            self.request.require_time()
            others = prod(r.count for r in real[1:])
            at = (slice(None), slice(None), *(slice(o, o + 1) for o in place))
            for part in parts(real[0], max(1, ROW_ELEMENTS // max(1, rows * others))):
                some = (part, *real[1:])
                sources = tuple(r.inputs(low) for r, low in zip(some, origins, strict=True))
                a = patches[(slice(None), slice(None), *sources)].move(by_terms[0])
                b = taps[tuple(r.outputs for r in some)].move(by_terms[1])
                sums.add(a, b, at)

    def tap_runs(self) -> list[list[Run | None]]:
        """For each spatial dimension and output, the taps that read a real input."""
        request = self.request
        strides, padding = request.ints("window_strides"), request.pairs("padding")
        holes, spread = request.ints("lhs_dilation"), request.ints("rhs_dilation")
        shape = request.type(0).shape
        return [
            [
                run(
                    0,
                    self.window[d],
                    spread[d],
                    output * strides[d] - padding[d][0],
                    holes[d],
                    shape[self.inputs[d + 1]],
                )
                for output in range(low, high)
            ]
            for d, (low, high) in enumerate(self.spatial)
        ]

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


def parts(whole: Run, most: int) -> Iterator[Run]:
    """A run in parts of at most `most` each."""
    for start in range(0, whole.count, most):
        yield replace(
            whole,
            first=whole.first + start * whole.step,
            source=whole.source + start * whole.source_step,
            count=min(most, whole.count - start),
        )


def _terms_last(x: NDArray[Any]) -> NDArray[Any]:
    """(group, batch, terms...) as matrices of batch and terms; batch may lie together."""
    if x.strides[1] > x.strides[-1]:
        return np.ascontiguousarray(x).reshape(*x.shape[:2], prod(x.shape[2:]))
    turned = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return turned.reshape(x.shape[0], prod(x.shape[2:]), x.shape[1]).swapaxes(1, 2)


def _terms_first(x: NDArray[Any]) -> NDArray[Any]:
    """(group, terms..., features) as matrices of terms and features."""
    return np.ascontiguousarray(x).reshape(x.shape[0], prod(x.shape[1:-1]), x.shape[-1])


Movement = Callable[[NDArray[Any]], NDArray[Any]]
_TAPS_FIRST: tuple[Movement, Movement] = (
    _terms_last,
    lambda x: _terms_first(np.moveaxis(x[..., 0, :, :], -3, 0)),
)
"""Matrices of (group, batch, taps..., channels), and of (taps..., group, 1, channels, features)."""
_CHANNELS_FIRST: tuple[Movement, Movement] = (
    lambda x: _terms_last(np.moveaxis(x, -1, 2)),
    lambda x: _terms_first(np.moveaxis(x[..., 0, :, :], (-3, -2), (0, 1))),
)
"""The same with terms in another order, for patches whose channels lie furthest apart."""


def _flat_rows(x: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(x).reshape(x.shape[0], prod(x.shape[1:-1]), x.shape[-1])

"""Schedules of convolutions on GPUs: products of windows and weights that are never written out.

`triton_convolution` reads the windows of a block of positions tap by tap; `triton_merged_taps`
reads a whole row of a window at once, for images with few channels. A window of one element
without a stride is a product of its own.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu import GpuConvolution, GpuProduct
from hlotune.schedules.spaces.gpu.products import (
    SMALLEST_BLOCK,
    hopper_product,
    hopper_takes,
    triton_product,
)
from hlotune.schedules.spaces.gpu.space import (
    Columns,
    GpuKnob,
    GpuSketch,
    GpuSpace,
    Limit,
    next_power_of_two,
    powers_of_two,
)
from hlotune.schedules.targets.gpu import GpuTarget


def convolution_space(convolution: GpuConvolution, target: GpuTarget) -> GpuSpace:
    """All schedules of a convolution on a GPU."""
    if is_product(convolution):
        product = as_product(convolution)
        sketches = [triton_product(product, target)]
        if target.warpgroup_products and hopper_takes(product):
            sketches.insert(0, hopper_product(product, target))
        return GpuSpace(target, tuple(sketches))
    if convolution.channels < SMALLEST_BLOCK:
        return GpuSpace(target, (triton_merged_taps(convolution, target),))
    return GpuSpace(target, (triton_convolution(convolution, target),))


def is_product(convolution: GpuConvolution) -> bool:
    """Whether each position reads one element of each channel, all in order."""
    c = convolution
    return (c.window, c.stride, c.padding) == (1, 1, 0)


def as_product(convolution: GpuConvolution) -> GpuProduct:
    """The product over positions, terms and features."""
    c = convolution
    return GpuProduct(m=c.positions, k=c.terms, n=c.features, element=c.element)


def triton_convolution(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """A tap and a block of channels a step."""
    channels = next_power_of_two(convolution.channels)
    depths = tuple(b for b in (32, 64, 128) if b <= channels) or (channels,)
    return _windowed("triton_convolution", convolution, target, depths)


def triton_merged_taps(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """A row of the window a step: its taps and channels lie together in the image."""
    depth = max(SMALLEST_BLOCK, next_power_of_two(convolution.window * convolution.channels))
    return _windowed("triton_merged_taps", convolution, target, (depth,))


def _windowed(
    name: str, convolution: GpuConvolution, target: GpuTarget, depths: tuple[int, ...]
) -> GpuSketch:
    """The product's sketch with depths that steps of the windows have, unsplit."""
    product = as_product(convolution)
    base = triton_product(product, target)
    features = next_power_of_two(convolution.features)
    knobs = (
        GpuKnob("block_m", powers_of_two(32, 256)),
        GpuKnob("block_n", powers_of_two(SMALLEST_BLOCK, min(256, max(16, features)))),
        GpuKnob("block_k", depths),
        GpuKnob("group_m", (1, 8)),
        GpuKnob("warps", (4, 8)),
        GpuKnob("stages", (2, 3, 4)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        return base.limits(_whole(c))

    def seconds(c: Columns) -> NDArray[np.float64]:
        return base.seconds(_whole(c)) * 1.1

    return GpuSketch(name, knobs, limits, seconds)


def _whole(c: Columns) -> Columns:
    return {**c, "split_k": np.ones_like(c["stages"])}

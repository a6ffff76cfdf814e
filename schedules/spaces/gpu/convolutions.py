"""Schedules of convolutions on GPUs: products of windows and weights that are never written out.

`triton_convolution` reads the windows of a block of positions tap by tap, with gaps and in groups
of channels where there are any; `triton_merged_taps` reads a whole row of a window at once, for
images with few channels, and `triton_padded_windows` does so out of a copy of the images in which
it is aligned. `hopper_convolution` keeps a block of images in shared memory, where all taps read
it. A window of one element without a stride is a product of its own.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuConvolution, GpuProduct
from hlotune.schedules.patterns.gpu_windows import GROUP, LINE, SLAB_BYTES, UNIT_ROWS, WindowBlocks
from hlotune.schedules.patterns.inlined import LEFT_ALONE
from hlotune.schedules.spaces.gpu.products import (
    ACCUMULATOR_REGISTERS,
    BARRIER_BYTES,
    COPIED_ELEMENTS,
    SMALLEST_BLOCK,
    WARPGROUP_THREADS,
    product_sketches,
    triton_product,
)
from hlotune.schedules.spaces.gpu.space import (
    Columns,
    GpuKnob,
    GpuSketch,
    GpuSpace,
    Limit,
    ceil_div,
    next_power_of_two,
    powers_of_two,
)
from hlotune.schedules.targets.gpu import GpuTarget

WARPGROUPS = 2
"""That multiply in `hopper_convolution`."""
STORED_BYTES = WARPGROUPS * 2 * UNIT_ROWS * LINE * 2
"""Bytes of units of results on their way to memory, two of each warpgroup."""
BUSY = {64: 0.65, 128: 0.85, 256: 0.9}
"""What part of the peak the matrix unit reaches by the columns of a block of weights."""
STORED_PER_S = 60e9
"""Bytes of results that one multiprocessor converts and stores, roughly."""


def convolution_space(convolution: GpuConvolution, target: GpuTarget) -> GpuSpace:
    """All schedules of a convolution on a GPU."""
    sketches = list[GpuSketch]()
    if convolution.tail is not None:
        _require_no_better(target, convolution)
    if target.warpgroup_products and windows_in_place(convolution):
        sketches.append(hopper_convolution(convolution, target))
    if is_product(convolution):
        sketches.extend(product_sketches(as_product(convolution), target))
    elif convolution.channels < SMALLEST_BLOCK and is_dense(convolution):
        sketches.append(triton_padded_windows(convolution, target))
        sketches.append(triton_merged_taps(convolution, target))
    else:
        sketches.append(triton_convolution(convolution, target))
    return GpuSpace(target, tuple(sketches))


def _require_no_better(target: GpuTarget, c: GpuConvolution) -> None:
    """Raises UnsupportedKernel where sums alone have kernels that have no tails yet."""
    if (target.warpgroup_products and windows_in_place(c)) or c.channels < SMALLEST_BLOCK:
        raise UnsupportedKernel(
            "expected a bias, alone or with a rectifier, behind the sums of these windows, got "
            f"more: {LEFT_ALONE}"
        )


def is_product(convolution: GpuConvolution) -> bool:
    """Whether each position reads one element of each channel, all in order."""
    c = convolution
    return (c.window, c.stride, c.padding, c.groups) == (1, 1, 0, 1)


def is_dense(convolution: GpuConvolution) -> bool:
    """Whether windows have no gaps, and all features read all channels."""
    return convolution.dilation == convolution.groups == 1


def as_product(convolution: GpuConvolution) -> GpuProduct:
    """The product over positions, terms and features of one group; a batch of them."""
    c = convolution
    m, n = c.positions, c.group_features
    return GpuProduct(m, c.terms, n, c.element, c.groups, c.epilogue, c.tail)


def windows_in_place(convolution: GpuConvolution) -> bool:
    """Whether `hopper_convolution` takes it: whole lines of channels, and whole planes.

    The last images and features need not be whole blocks, as in `ring_takes`.
    """
    c = convolution
    lines = c.channels % LINE == 0 and c.features % COPIED_ELEMENTS == 0
    whole = c.size % c.stride == 0 and c.batch >= GROUP and c.features >= LINE
    return c.element in ("bf16", "f16") and lines and whole and is_dense(c)


def hopper_convolution(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """Blocks of results of eight images and more; two warpgroups multiply and one copies."""
    c = convolution
    columns = tuple(n for n in (8, 16, 24, 32) if n < c.out + GROUP)
    knobs = (
        GpuKnob("groups", tuple(n for n in (1, 2, 4) if GROUP * n <= c.batch)),
        GpuKnob("rows", tuple(n for n in (1, 2, 4, 7, 8) if n <= c.out)),
        GpuKnob("columns", columns),
        GpuKnob("block_n", _feature_blocks(c)),
        GpuKnob("stages", (1, 2, 3, 4)),
        GpuKnob("weight_stages", (2, 3, 4, 6, 9)),
        GpuKnob("cluster", (1, 2)),
    )

    def limits(chosen: Columns) -> tuple[Limit, ...]:
        units = chosen["groups"] * chosen["rows"] * chosen["columns"] // GROUP
        sums = units // WARPGROUPS * UNIT_ROWS * chosen["block_n"] // WARPGROUP_THREADS
        return (
            Limit(
                f"at most {target.block_shared_bytes} bytes of shared memory a block",
                _window_bytes(c, chosen) <= target.block_shared_bytes,
            ),
            Limit(f"a multiple of {WARPGROUPS} units", units % WARPGROUPS == 0),
            Limit(
                f"at most {ACCUMULATOR_REGISTERS} registers a thread for sums",
                sums <= ACCUMULATOR_REGISTERS,
            ),
        )

    def seconds(chosen: Columns) -> NDArray[np.float64]:
        return _window_seconds(c, target, chosen)

    return GpuSketch("hopper_convolution", knobs, limits, seconds)


def _feature_blocks(c: GpuConvolution) -> tuple[int, ...]:
    """Features of a block: extents that divide theirs, where those are whole lines."""
    whole = c.features % LINE == 0
    return tuple(
        n for n in (64, 128, 256) if (c.features % n == 0 if whole else n < c.features + LINE)
    )


def _slabs(c: GpuConvolution, chosen: Columns) -> NDArray[np.int64]:
    """Slabs of a plane that one block of threads holds, for arrays of configs."""
    reach = WindowBlocks(c, 1, 1, GROUP).reach
    rows, columns = chosen["rows"] + reach, np.minimum(chosen["columns"], c.out) + reach
    return np.asarray(chosen["groups"] * rows * columns)


def _window_bytes(c: GpuConvolution, chosen: Columns) -> NDArray[np.int64]:
    """Shared memory of a block of threads."""
    overhang = np.maximum(chosen["columns"] - c.out, 0)
    images = SLAB_BYTES * (chosen["stages"] * _slabs(c, chosen) + overhang)
    weights = chosen["weight_stages"] * LINE * chosen["block_n"] * 2
    return np.asarray(images + weights + STORED_BYTES + BARRIER_BYTES)


def _window_seconds(c: GpuConvolution, target: GpuTarget, chosen: Columns) -> NDArray[np.float64]:
    """A roofline of a block: its products, or what is copied for them, then its store."""
    block_n, pieces = chosen["block_n"], c.channels // LINE
    planes = len(WindowBlocks(c, 1, 1, GROUP).planes)
    units = chosen["groups"] * chosen["rows"] * chosen["columns"] // GROUP
    images = ceil_div(c.batch, GROUP * chosen["groups"])
    across = ceil_div(c.out, chosen["columns"])
    blocks = images * ceil_div(c.out, chosen["rows"]) * across
    clusters = ceil_div(blocks, chosen["cluster"]) * ceil_div(c.features, block_n)
    busy = np.select([block_n == n for n in BUSY], list(BUSY.values()), 0.9)
    share = target.flops_per_s[c.element] / target.multiprocessors
    summed = 2.0 * units * UNIT_ROWS * block_n * c.terms / (share * busy)
    weights = c.window**2 * LINE * block_n * 2 / chosen["cluster"]
    read = planes * SLAB_BYTES * _slabs(c, chosen) + weights
    copied = pieces * read * target.multiprocessors / (1.5 * target.l2_bytes_per_s)
    stored = units * UNIT_ROWS * block_n * 2 / STORED_PER_S
    shallow = 1 + 0.05 * (4 - np.minimum(chosen["weight_stages"], 4))
    shallow = shallow * np.where(chosen["stages"] == 1, 1.2, 1.0)
    shallow = shallow * np.where(chosen["cluster"] == 1, 1.0, 1.02)
    turns = ceil_div(clusters, target.multiprocessors // chosen["cluster"])
    each = np.maximum(summed, copied) * shallow + stored
    return np.maximum(turns * each, c.bytes / target.memory_bytes_per_s) + 2 * target.launch_s


def triton_convolution(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """A tap and a block of channels a step."""
    channels = max(SMALLEST_BLOCK, next_power_of_two(convolution.group_channels))
    depths = tuple(b for b in (32, 64, 128) if b <= channels) or (channels,)
    return _windowed("triton_convolution", convolution, target, depths)


def triton_merged_taps(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """A row of the window a step: its taps and channels lie together in the image."""
    depth = max(SMALLEST_BLOCK, next_power_of_two(convolution.window * convolution.channels))
    return _windowed("triton_merged_taps", convolution, target, (depth,))


def padded_run(convolution: GpuConvolution) -> int:
    """Elements of a row of a window where taps and channels are powers of two each."""
    c = convolution
    run = next_power_of_two(c.window) * next_power_of_two(c.channels)
    return max(SMALLEST_BLOCK, run)


def triton_padded_windows(convolution: GpuConvolution, target: GpuTarget) -> GpuSketch:
    """Rows of the window a step, out of images copied with zeros around and between them."""
    run = padded_run(convolution)
    depths = tuple(run * n for n in (1, 2, 4, 8) if n == 1 or n < 2 * convolution.window)
    base = _windowed("triton_padded_windows", convolution, target, depths)
    c = convolution
    copied = c.batch * c.size**2 * (c.channels + next_power_of_two(c.channels))
    each = ELEMENT_BYTES[c.element] * copied / target.memory_bytes_per_s + target.launch_s

    def seconds(chosen: Columns) -> NDArray[np.float64]:
        return base.seconds(chosen) * 0.5 + each

    return GpuSketch(base.name, base.knobs, base.limits, seconds)


def _windowed(
    name: str, convolution: GpuConvolution, target: GpuTarget, depths: tuple[int, ...]
) -> GpuSketch:
    """The product's sketch with depths that steps of the windows have, unsplit."""
    product = as_product(convolution)
    base = triton_product(product, target)
    features = next_power_of_two(convolution.group_features)
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

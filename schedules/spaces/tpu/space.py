"""Schedules of products, attention and rows on TPUs: blocks in vector memory, copied by Pallas.

Kernels are the values that GPUs have schedules for as well.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuAttention, GpuProduct, GpuRows
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.patterns.inlined import LEFT_ALONE
from hlotune.schedules.patterns.tpu_views import views
from hlotune.schedules.spaces.gpu.space import (
    BlockSpace,
    Columns,
    GpuKnob,
    GpuSketch,
    Limit,
    ceil_div,
)
from hlotune.schedules.spaces.tpu.attention import tpu_attention
from hlotune.schedules.spaces.tpu.blocks import COPIES, STEP_S, extents, fits, whole_tiles
from hlotune.schedules.targets.tpu import LANES, TpuTarget, tile_rows

Seconds = NDArray[np.float64]
TpuSpace = BlockSpace[TpuTarget]


def tpu_space(kernel: AnyGpuKernel, target: TpuTarget) -> TpuSpace:
    """All schedules of a kernel on a TPU.

    Raises:
        UnsupportedKernel: where TPUs have no schedules for the kernel, or for its element type.
    """
    match kernel:
        case GpuStages():
            return BlockSpace(target, (tpu_stages(kernel, target),))
        case GpuProduct():
            _require_element(kernel.element, target)
            if kernel.tail is not None:
                raise UnsupportedKernel(
                    f"expected sums alone or with a bias, got more: {LEFT_ALONE}"
                )
            return BlockSpace(target, (tpu_product(kernel, target),))
        case GpuRows():
            _require_element(kernel.element, target)
            return BlockSpace(target, (tpu_rows(kernel, target),))
        case GpuAttention():
            _require_element(kernel.element, target)
            return BlockSpace(target, (tpu_attention(kernel, target),))
        case _:
            kind = type(kernel).__name__.removeprefix("Gpu").lower()
            raise UnsupportedKernel(
                f"TPUs have no schedule for {kind}, expected a product, attention or rows: "
                f"{LEFT_ALONE}"
            )


def _require_element(element: str, target: TpuTarget) -> None:
    if element not in target.flops_per_s:
        known = ", ".join(e for e in target.flops_per_s if e in ELEMENT_BYTES)
        raise UnsupportedKernel(
            f"{target.name} does not multiply {element}, expected {known}: {LEFT_ALONE}"
        )


def tpu_product(product: GpuProduct, target: TpuTarget) -> GpuSketch:
    """A block of the result a step, summed up in vector memory along the last axis of the grid."""
    p, size = product, ELEMENT_BYTES[product.element]
    knobs = (
        GpuKnob("block_m", extents(p.m, tile_rows(size), 1024)),
        GpuKnob("block_n", extents(p.n, LANES, 2048)),
        GpuKnob("block_k", extents(p.k, LANES, 2048)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        m, n, k = c["block_m"], c["block_n"], c["block_k"]
        return (
            whole_tiles("the left operand", (m, p.m), (k, p.k), size),
            whole_tiles("the right operand", (k, p.k), (n, p.n), size),
            whole_tiles("the result", (m, p.m), (n, p.n), size),
            fits(COPIES * size * (m * k + k * n + m * n) + 4 * m * n, target),
        )

    def seconds(c: Columns) -> Seconds:
        m, n, k = (ceil_div(c[f"block_{a}"], LANES) * float(LANES) for a in "mnk")
        across = ceil_div(p.m, c["block_m"]) * ceil_div(p.n, c["block_n"]) * p.batch
        steps = across * ceil_div(p.k, c["block_k"])
        summed = 2.0 * m * n * k / target.flops_per_s[p.element]
        copied = size * (m * k + k * n) / target.memory_bytes_per_s
        stored = across * m * n * size / target.memory_bytes_per_s
        return np.asarray(steps * (np.maximum(summed, copied) + STEP_S) + stored)

    return GpuSketch("tpu_product", knobs, limits, seconds)


def tpu_rows(rows: GpuRows, target: TpuTarget) -> GpuSketch:
    """Whole rows a step."""
    size = ELEMENT_BYTES[rows.element]
    knobs = (GpuKnob("rows", extents(rows.rows, tile_rows(size), 1024)),)

    def limits(c: Columns) -> tuple[Limit, ...]:
        columns = np.full_like(c["rows"], rows.columns)
        held = c["rows"] * rows.columns * (2 * COPIES * size + 4)
        whole = whole_tiles("the rows", (c["rows"], rows.rows), (columns, rows.columns), size)
        return whole, fits(held, target)

    def seconds(c: Columns) -> Seconds:
        steps = ceil_div(rows.rows, c["rows"])
        copied = 2.0 * c["rows"] * rows.columns * size / target.memory_bytes_per_s
        # The first block is waited for before anything is computed.
        return np.asarray(steps * (copied + STEP_S) + copied / 2)

    return GpuSketch("tpu_rows", knobs, limits, seconds)


def tpu_stages(stages: GpuStages, target: TpuTarget) -> GpuSketch:
    """Whole rows a step, of all stages.  Raises UnsupportedKernel where a tensor is no matrix."""
    found = views(stages)
    tensors = (*stages.arguments, *stages.results)
    sizes = {t.name: BYTES[t.dtype] for t in tensors if found[t.name].has_rows}
    tile = max(map(tile_rows, sizes.values()), default=tile_rows(4))
    knobs = (GpuKnob("rows", extents(stages.count, tile, 1024)),)

    def limits(c: Columns) -> tuple[Limit, ...]:
        whole = (c["rows"] % tile == 0) | (c["rows"] == stages.count)
        message = f"blocks of whole tiles of {tile} rows, or of all rows"
        return Limit(message, whole), fits(held_bytes(stages, c["rows"]), target)

    def seconds(c: Columns) -> Seconds:
        steps = ceil_div(stages.count, c["rows"])
        copied = stages.bytes / target.memory_bytes_per_s
        # The first block is waited for before anything is computed.
        return np.asarray(copied + steps * STEP_S + copied / steps / 2)

    space = BlockSpace(target, (sketch := GpuSketch("tpu_stages", knobs, limits, seconds),))
    if not len(space.configs):
        raise UnsupportedKernel(
            f"expected rows that vector memory holds, got {stages.width} points: {LEFT_ALONE}"
        )
    return sketch


def held_bytes(stages: GpuStages, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Vector memory of blocks of so many rows, and of what is computed with them in f32."""
    found = views(stages)
    blocks = sum(
        COPIES * BYTES[t.dtype] * max(found[t.name].shape[1], LANES)
        for t in (*stages.arguments, *stages.results)
    )
    return np.asarray(rows * (blocks + 2 * 4 * max(stages.width, LANES)))

"""Schedules of attention on TPUs: blocks of queries and keys in vector memory."""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuAttention
from hlotune.schedules.patterns.inlined import LEFT_ALONE
from hlotune.schedules.spaces.gpu.space import Columns, GpuKnob, GpuSketch, Limit, ceil_div
from hlotune.schedules.spaces.tpu.blocks import COPIES, STEP_S, extents, fits, whole_tiles
from hlotune.schedules.targets.tpu import LANES, TpuTarget, tile_rows

Ints = NDArray[np.int64]


def tpu_attention(attention: GpuAttention, target: TpuTarget) -> GpuSketch:
    """A block of queries a step, and of keys along the last axis of the grid.

    Raises UnsupportedKernel where more is made of the scores than a factor and a causal mask.
    """
    a, size = attention, ELEMENT_BYTES[attention.element]
    if a.scores is not None:
        raise UnsupportedKernel(
            f"expected scores times a constant, with a causal mask or none, got more: {LEFT_ALONE}"
        )
    knobs = (
        GpuKnob("block_q", extents(a.queries, tile_rows(size), 1024)),
        GpuKnob("block_k", extents(a.keys, LANES, 1024)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        q, k = c["block_q"], c["block_k"]
        depth, features = (np.full_like(q, n) for n in (a.depth, a.features))
        return (
            whole_tiles("the queries", (q, a.queries), (depth, a.depth), size),
            whole_tiles("the keys", (k, a.keys), (features, a.features), size),
            fits(held_bytes(a, q, k), target),
        )

    def seconds(c: Columns) -> NDArray[np.float64]:
        q, k = c["block_q"], c["block_k"]
        rows, steps = ceil_div(a.queries, q), ceil_div(a.keys, k)
        seen = 0.5 + 0.5 / np.minimum(rows, steps) if a.causal else 1.0
        padded = ceil_div(a.depth, LANES) * LANES * 2.0 + ceil_div(a.features, LANES) * LANES * 2.0
        summed = q * k * padded / target.flops_per_s[a.element]
        copied = k * (a.depth + a.features) * size / target.memory_bytes_per_s
        each = np.maximum(summed * seen, copied) + STEP_S
        return np.asarray(a.heads * rows * (steps * each + STEP_S))

    return GpuSketch("tpu_attention", knobs, limits, seconds)


def held_bytes(a: GpuAttention, block_q: Ints | int, block_k: Ints | int) -> Ints:
    """Vector memory of copied blocks, of what is carried over keys, and of scores in f32."""
    wide = [max(n, LANES) for n in (a.depth, a.features)]
    size = COPIES * ELEMENT_BYTES[a.element]
    copied = size * sum(wide) * (np.asarray(block_q) + np.asarray(block_k))
    carried = 4 * np.asarray(block_q) * (wide[1] + 2 * LANES)
    return np.asarray(copied + carried + 2 * 4 * np.asarray(block_q) * block_k)

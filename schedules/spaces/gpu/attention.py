"""Schedules of attention on GPUs, all without the matrix of scores in memory.

`triton_attention` takes a block of queries a program and goes through blocks of keys;
`hopper_attention` has two warpgroups whose products and exponentials take turns, and one that
copies keys and values ahead, as in FlashAttention-3 (arXiv 2407.08608).
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import distinct_loads
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuAttention
from hlotune.schedules.spaces.gpu.products import BARRIER_BYTES
from hlotune.schedules.spaces.gpu.space import (
    Columns,
    GpuKnob,
    GpuSketch,
    GpuSpace,
    Limit,
    ceil_div,
    next_power_of_two,
)
from hlotune.schedules.targets.gpu import GpuTarget

THREAD_REGISTERS = 230
"""Registers of a thread that scores and sums may take together."""
WARPGROUPS = 2
"""That multiply."""
QUERIES, KEYS = 128, 64
"""The fewest queries and keys of a block of threads; other blocks divide those that they divide."""


def attention_space(attention: GpuAttention, target: GpuTarget) -> GpuSpace:
    """All schedules of an attention on a GPU."""
    sketches = [triton_attention(attention, target)]
    if target.warpgroup_products and hopper_attention_takes(attention):
        sketches.insert(0, hopper_attention(attention, target))
    return GpuSpace(target, tuple(sketches))


def hopper_attention_takes(attention: GpuAttention) -> bool:
    """Whether the copy engine takes it; queries and keys need not be whole blocks."""
    long = attention.queries >= QUERIES and attention.keys >= KEYS
    narrow = attention.element in ("bf16", "f16")
    square = not attention.causal or attention.queries == attention.keys
    plain = attention.scores is None and attention.features == attention.depth
    return narrow and long and square and plain and attention.depth in (64, 128, 256)


def triton_attention(attention: GpuAttention, target: GpuTarget) -> GpuSketch:
    """One block of queries a program."""
    knobs = (
        GpuKnob("block_q", (16, 32, 64, 128)),
        GpuKnob("block_k", (16, 32, 64, 128)),
        GpuKnob("warps", (4, 8)),
        GpuKnob("stages", (1, 2, 3, 4)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        return _triton_limits(attention, target, c)

    def seconds(c: Columns) -> NDArray[np.float64]:
        depth = np.where(c["stages"] == 1, 1.3, 1.0)
        thin = np.where(c["block_q"] < 16 * c["warps"], 1.5, 1.0)
        return (
            _attention_seconds(attention, target, c["block_q"], c["block_k"], 0.45) * depth * thin
        )

    return GpuSketch("triton_attention", knobs, limits, seconds)


def _triton_limits(attention: GpuAttention, target: GpuTarget, c: Columns) -> tuple[Limit, ...]:
    depth, features = (max(16, next_power_of_two(n)) for n in (attention.depth, attention.features))
    read = c["block_q"] * depth + c["block_k"] * c["stages"] * (depth + features)
    shared = ELEMENT_BYTES[attention.element] * read
    shared = shared + (c["stages"] - 1) * c["block_q"] * c["block_k"] * _ahead_bytes(attention)
    threads = 32 * c["warps"]
    held = c["block_q"] * (features + c["block_k"] * 3 // 2) // threads
    longest_q = max(16, next_power_of_two(attention.queries))
    longest_k = max(16, next_power_of_two(attention.keys))
    return (
        Limit(
            f"at most {target.block_shared_bytes} bytes of shared memory a block",
            shared <= target.block_shared_bytes,
        ),
        Limit(f"at most {THREAD_REGISTERS} registers a thread", held <= THREAD_REGISTERS),
        Limit("blocks no longer than the queries", c["block_q"] <= longest_q),
        Limit("blocks no longer than the keys", c["block_k"] <= longest_k),
    )


def _ahead_bytes(attention: GpuAttention) -> int:
    """Bytes that a score reads of other tensors, which Triton copies ahead into shared memory.

    It copies blocks of queries and keys so, but no elements of two bytes (bf16 and f16).
    """
    if attention.scores is None:
        return 0
    tail = attention.scores
    rows = {a.name for a in tail.axes[: tail.row_axes]}
    keys = {a.name for a in tail.axes[tail.row_axes :]}
    others = {t.name for t in tail.tensors}
    read = (x for x in distinct_loads((tail.value,)) if x.tensor in others)
    wide = (x for x in read if rows & set(x.axes) and keys & set(x.axes))
    return sum(BYTES[x.dtype] for x in wide if BYTES[x.dtype] != 2)


def hopper_attention(attention: GpuAttention, target: GpuTarget) -> GpuSketch:
    """Queries of two warpgroups a block of threads."""
    knobs = (
        GpuKnob("block_q", (64, 128)),
        GpuKnob("block_k", (64, 128, 192, 256)),
        GpuKnob("stages", (2, 3, 4, 5)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        depth, size = attention.depth, ELEMENT_BYTES[attention.element]
        queries = WARPGROUPS * c["block_q"] * depth
        shared = size * (queries + 2 * c["stages"] * c["block_k"] * depth) + BARRIER_BYTES
        held = c["block_q"] * (depth + c["block_k"] * 3 // 2) // 128
        return (
            Limit(
                f"at most {target.block_shared_bytes} bytes of shared memory a block",
                shared <= target.block_shared_bytes,
            ),
            Limit(f"at most {THREAD_REGISTERS} registers a thread", held <= THREAD_REGISTERS),
            Limit(
                "blocks that divide the queries",
                _divides(attention.queries, WARPGROUPS * c["block_q"], QUERIES),
            ),
            Limit(
                "blocks that divide the keys",
                _divides(attention.keys, c["block_k"], KEYS),
            ),
            Limit(
                "no more stages than blocks of keys",
                c["stages"] <= ceil_div(attention.keys, c["block_k"]),
            ),
        )

    def seconds(c: Columns) -> NDArray[np.float64]:
        queries = WARPGROUPS * c["block_q"]
        return _attention_seconds(attention, target, queries, c["block_k"], 0.7)

    return GpuSketch("hopper_attention", knobs, limits, seconds)


def _divides(extent: int, block: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """Whether blocks divide an extent; where the least one does not, whether they are no longer."""
    return np.asarray(extent % block == 0 if extent % least == 0 else block <= extent)


def _attention_seconds(
    attention: GpuAttention,
    target: GpuTarget,
    block_q: NDArray[np.int64],
    block_k: NDArray[np.int64],
    efficiency: float,
) -> NDArray[np.float64]:
    """Products at an efficiency that larger blocks approach; causal ones waste half a block."""
    busy = efficiency * block_q / (block_q + 32.0) * block_k / (block_k + 16.0)
    blocks = attention.heads * ceil_div(attention.queries, block_q)
    waves = ceil_div(blocks, target.multiprocessors) * target.multiprocessors / blocks
    waste = 1 + (block_q + block_k) / (2.0 * attention.keys) if attention.causal else 1.0
    work = attention.flops / target.flops_per_s[attention.element]
    # Blocks of a causal one have different lengths, so the last wave is rarely whole.
    filled = np.minimum(waves, 1.5) if attention.causal else waves
    return work / busy * filled * waste + target.launch_s

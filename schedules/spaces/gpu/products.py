"""Schedules of matrix products on GPUs.

`triton_product` computes one block of the result a program; `hopper_product` has two warpgroups
that multiply and one that copies, and a block of threads for each multiprocessor that goes through
blocks of the result. `hopper_ring_product` does so too, and copies ahead over their ends.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuProduct
from hlotune.schedules.patterns.inlined import LEFT_ALONE
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
from hlotune.schedules.targets.gpu import KIB, GpuTarget

ACCUMULATOR_REGISTERS = 160
"""Registers of a thread that sums may take: the others hold addresses and what is converted."""
THREE_WARPGROUPS_REGISTERS = 96
"""The same where three warpgroups multiply, which have 160 registers a thread."""
SMALLEST_BLOCK = 16
"""Elements that the matrix unit takes along each axis."""
WARPGROUP_THREADS = 128
STORED_ROWS, STORED_LINE_BYTES = 64, 128
"""Rows of what one warpgroup stores at once, and bytes of each."""
BARRIER_BYTES = 1 * KIB
COPIED_ELEMENTS = 8
"""Elements of 2 bytes in 16 bytes, of which the copy engine takes whole multiples."""


def product_space(product: GpuProduct, target: GpuTarget) -> GpuSpace:
    """All schedules of a product on a GPU."""
    return GpuSpace(target, product_sketches(product, target))


def product_sketches(product: GpuProduct, target: GpuTarget) -> tuple[GpuSketch, ...]:
    """What can compute a product, the kernels for Hopper first."""
    sketches = [triton_product(product, target)]
    if product.tail is not None:
        _require_no_better(target.warpgroup_products and ring_takes(product))
        return tuple(sketches)
    if target.warpgroup_products and hopper_takes(product):
        sketches.insert(0, hopper_product(product, target))
    if target.warpgroup_products and ring_takes(product):
        sketches.insert(0, hopper_ring_product(product, target))
    return tuple(sketches)


def _require_no_better(apart: bool) -> None:
    """Raises UnsupportedKernel where sums alone have kernels that are much faster.

    Those have no tails yet: what is made of the sums is a kernel of its own then.
    """
    if apart:
        raise UnsupportedKernel(
            "expected a bias, alone or with a rectifier or a Gaussian unit, behind the sums of "
            f"warpgroups, got more: {LEFT_ALONE}"
        )


def hopper_takes(product: GpuProduct) -> bool:
    """Whether whole blocks cover the product, as the copy engine of `hopper_product` needs."""
    multiplied = product.element != "f32" and product.epilogue == "none"
    extents = (product.m, product.n, product.k)
    return multiplied and all(e % STORED_ROWS == 0 for e in extents)


def ring_takes(product: GpuProduct) -> bool:
    """Whether the copy engine takes the operands: their rows begin at multiples of 16 bytes.

    No extent needs to be whole blocks, for the engine reads zeros outside of an operand and writes
    nothing outside of the result; but each is as long as the least block.
    """
    narrow = product.element in ("bf16", "f16")
    aligned = all(e % COPIED_ELEMENTS == 0 for e in (product.n, product.k))
    return narrow and aligned and min(product.m, product.n, product.k) >= STORED_ROWS


def ring_columns(product: GpuProduct) -> tuple[int, ...]:
    """Columns of a block: extents that divide those of the result, where its lines are whole."""
    extents = (64, 128, 192, 256)
    if product.n % STORED_ROWS == 0:
        return tuple(n for n in extents if product.n % n == 0)
    return tuple(n for n in extents if n < product.n + STORED_ROWS)


def stored_columns(element: str) -> int:
    """Columns of what one warpgroup stores at once: those of a line."""
    return STORED_LINE_BYTES // ELEMENT_BYTES[element]


def triton_product(product: GpuProduct, target: GpuTarget) -> GpuSketch:
    """Blocks of the result, summed up in registers along k."""
    deepest = 128 if product.element in ("bf16", "f16") else 64
    splits = (1,) if product.batch > 1 or product.tail else (1, 2, 4, 8)
    knobs = (
        GpuKnob("block_m", _blocks(product.m, 256)),
        GpuKnob("block_n", _blocks(product.n, 256)),
        GpuKnob("block_k", tuple(b for b in _blocks(product.k, deepest) if b >= 32) or (16,)),
        GpuKnob("split_k", splits),
        GpuKnob("group_m", (1, 4, 8)),
        GpuKnob("warps", (4, 8)),
        GpuKnob("stages", (2, 3, 4, 5)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        shared = c["stages"] * _operand_bytes(c, product.element)
        sums = c["block_m"] * c["block_n"] // (32 * c["warps"])
        steps = ceil_div(product.k, c["block_k"])
        return (
            _shared_memory(target, shared),
            Limit(
                f"at most {ACCUMULATOR_REGISTERS} registers a thread for sums",
                sums <= ACCUMULATOR_REGISTERS,
            ),
            Limit("at least 2 results a thread", sums >= 2),
            Limit("parts of k that are whole blocks", steps % c["split_k"] == 0),
            Limit(
                "groups no taller than the result",
                (c["group_m"] == 1) | (c["group_m"] * c["block_m"] <= product.m),
            ),
        )

    def seconds(c: Columns) -> NDArray[np.float64]:
        # Operands that the matrix unit does not take as they lie go through registers.
        direct = 0.8 if product.element in ("bf16", "f16") else 0.5
        held = c["stages"] * _operand_bytes(c, product.element)
        parts = np.where(c["split_k"] > 1, 3.0 * product.m * product.n * 4 * c["split_k"], 0.0)
        summing = parts / target.memory_bytes_per_s + np.where(
            c["split_k"] > 1, target.launch_s, 0.0
        )
        return _block_seconds(product, target, c, c["split_k"], held, direct) + summing

    return GpuSketch("triton_product", knobs, limits, seconds)


def hopper_product(product: GpuProduct, target: GpuTarget) -> GpuSketch:
    """Warpgroups with roles of their own, the copy engine and `wgmma`."""
    line = stored_columns(product.element)
    knobs = (
        GpuKnob("block_m", (64, 128, 256)),
        GpuKnob("block_n", (64, 128, 192, 256)),
        GpuKnob("block_k", (line, 2 * line)),
        GpuKnob("stages", (1, 2, 3, 4, 5, 6)),
        GpuKnob("split_n", (0, 1)),
        GpuKnob("cluster", (0, 1, 2)),
        GpuKnob("minor_n", (0, 1)),
        GpuKnob("panel", (1, 4, 8, 16)),
        GpuKnob("chained", (0, 1)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        return (*_hopper_parts(product, target, c), *_hopper_order(product, target, c))

    def seconds(c: Columns) -> NDArray[np.float64]:
        return _hopper_seconds(product, target, c)

    return GpuSketch("hopper_product", knobs, limits, seconds)


def _hopper_parts(product: GpuProduct, target: GpuTarget, c: Columns) -> tuple[Limit, ...]:
    """What memory and registers hold of a block, and which blocks cover the result."""
    part_m = np.where(c["split_n"] == 0, c["block_m"] // 2, c["block_m"])
    part_n = np.where(c["split_n"] == 1, c["block_n"] // 2, c["block_n"])
    along_m, along_n = np.where(c["cluster"] == 1, 2, 1), np.where(c["cluster"] == 2, 2, 1)
    stored = 2 * 2 * STORED_ROWS * STORED_LINE_BYTES
    held = c["stages"] * _operand_bytes(c, product.element) + stored + BARRIER_BYTES
    return (
        _shared_memory(target, held),
        Limit(
            f"at most {ACCUMULATOR_REGISTERS} registers a thread for sums",
            part_m * part_n // WARPGROUP_THREADS <= ACCUMULATOR_REGISTERS,
        ),
        Limit(
            f"parts of a warpgroup that are multiples of {STORED_ROWS}",
            (part_m % STORED_ROWS == 0) & (part_n % STORED_ROWS == 0),
        ),
        Limit(
            "blocks of a cluster that divide the result",
            (product.m % (c["block_m"] * along_m) == 0)
            & (product.n % (c["block_n"] * along_n) == 0),
        ),
        Limit("blocks that divide k", product.k % c["block_k"] == 0),
    )


def _hopper_order(product: GpuProduct, target: GpuTarget, c: Columns) -> tuple[Limit, ...]:
    """Which stages, panels and chains of copies there are."""
    steps = product.k // c["block_k"]
    minor = np.where(c["minor_n"] == 1, product.n // c["block_n"], product.m // c["block_m"])
    return (
        Limit("no more stages than blocks along k", c["stages"] <= steps),
        Limit("panels no wider than the grid", (c["panel"] == 1) | (c["panel"] <= minor)),
        Limit(
            "two blocks or more for each cluster whose copies are chained",
            (c["chained"] == 0) | (c["cluster"] == 0) | _twice(product, target, c),
        ),
        Limit(
            "whole rounds of stages along k where copies of the next block are chained",
            (c["chained"] == 0) | (steps % c["stages"] == 0),
        ),
    )


def _hopper_seconds(product: GpuProduct, target: GpuTarget, c: Columns) -> NDArray[np.float64]:
    one = np.ones_like(c["stages"])
    # One block of threads a multiprocessor, however little memory it takes.
    held = np.full_like(one, target.block_shared_bytes)
    guess = _block_seconds(product, target, c, one, held, 0.9)
    shallow = 1 + 0.05 * (4 - np.minimum(c["stages"], 4))
    blocks = product.m * product.n * product.batch / (c["block_m"] * c["block_n"])
    turns = np.ceil(blocks / target.multiprocessors)
    started = 1e-6 * np.where(c["chained"] == 1, 1.0, turns)
    turned = 0.0
    if product.element == "tf32":  # columns are read as rows, which costs a copy before
        copied = 2.0 * product.batch * product.k * product.n * ELEMENT_BYTES["tf32"]
        turned = copied / target.memory_bytes_per_s + target.launch_s
    panels = np.where(c["panel"] == 1, 1.02, 1.0)
    return np.asarray(guess * shallow * panels + started + turned)


def _shared_memory(target: GpuTarget, held_bytes: NDArray[np.int64]) -> Limit:
    most = target.block_shared_bytes
    return Limit(f"at most {most} bytes of shared memory a block", held_bytes <= most)


def warpgroups(block_m: int) -> int:
    """How many multiply in `hopper_ring_product`: three where they have 64 rows each."""
    return 3 if block_m == 3 * STORED_ROWS else 2


def hopper_ring_product(product: GpuProduct, target: GpuTarget) -> GpuSketch:
    """The same warpgroups, and a ring of rooms that copies fill across blocks of the result."""
    knobs = (
        GpuKnob("block_m", (128, 192, 256)),
        GpuKnob("block_n", ring_columns(product)),
        GpuKnob("stages", (2, 3, 4, 5, 6)),
        GpuKnob("stores", (2, 4)),
        GpuKnob("cluster", (0, 1, 2)),
        GpuKnob("minor_n", (0, 1)),
        GpuKnob("panel", (1, 4, 8)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        return _ring_limits(product, target, c)

    def seconds(c: Columns) -> NDArray[np.float64]:
        one = np.ones_like(c["stages"])
        held = np.full_like(one, target.block_shared_bytes)
        guess = _block_seconds(product, target, _with_depth(product, c), one, held, 0.9)
        shallow = 1 + 0.05 * (4 - np.minimum(c["stages"], 4))
        alone = np.where(c["cluster"] == 0, 1.01, 1.0)
        return guess * shallow * alone * np.where(c["panel"] == 1, 1.02, 1.0) + 1e-6

    return GpuSketch("hopper_ring_product", knobs, limits, seconds)


def _with_depth(product: GpuProduct, c: Columns) -> Columns:
    """The knobs with the terms of a room, which are a line of memory."""
    return {**c, "block_k": np.full_like(c["stages"], stored_columns(product.element))}


def _ring_limits(product: GpuProduct, target: GpuTarget, c: Columns) -> tuple[Limit, ...]:
    three = c["block_m"] == 3 * STORED_ROWS
    staged = c["stores"] * np.where(three, 3, 2) * STORED_ROWS * STORED_LINE_BYTES
    rooms = c["stages"] * _operand_bytes(_with_depth(product, c), product.element)
    sums = c["block_m"] * c["block_n"] // np.where(three, 3, 2) // WARPGROUP_THREADS
    down, right = np.where(c["cluster"] == 1, 2, 1), np.where(c["cluster"] == 2, 2, 1)
    across, along = ceil_div(product.n, c["block_n"] * right), c["block_m"] * down
    minor = np.where(c["minor_n"] == 1, across, ceil_div(product.m, along))
    return (
        _shared_memory(target, rooms + staged + BARRIER_BYTES),
        Limit(
            "no more registers a thread for sums than its warpgroup has left",
            sums <= np.where(three, THREE_WARPGROUPS_REGISTERS, ACCUMULATOR_REGISTERS),
        ),
        Limit("blocks no taller than the result", c["block_m"] < product.m + 2 * STORED_ROWS),
        Limit(
            "clusters that divide the columns, and two blocks or more in one",
            ((c["cluster"] != 2) | _pairs_of_columns(product, c["block_n"]))
            & ((c["cluster"] != 1) | (product.m > c["block_m"])),
        ),
        Limit("panels no wider than the grid", (c["panel"] == 1) | (c["panel"] <= minor)),
    )


def _pairs_of_columns(product: GpuProduct, block_n: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether clusters of two blocks side by side suit the columns: whole, or more than a block."""
    whole = product.n % (2 * block_n) == 0
    return np.asarray(whole if product.n % STORED_ROWS == 0 else product.n > block_n)


def _twice(product: GpuProduct, target: GpuTarget, c: Columns) -> NDArray[np.bool_]:
    """Whether each block of threads has two blocks of the result: the last one waits for both."""
    blocks = product.batch * (product.m // c["block_m"]) * (product.n // c["block_n"])
    return np.asarray(blocks >= 2 * target.multiprocessors)


def _blocks(extent: int, most: int) -> tuple[int, ...]:
    """Powers of two from the smallest block to the first that holds the extent."""
    return powers_of_two(SMALLEST_BLOCK, min(most, max(SMALLEST_BLOCK, next_power_of_two(extent))))


def _operand_bytes(c: Columns, element: str) -> NDArray[np.int64]:
    """Bytes of one stage: a block of each operand."""
    return (c["block_m"] + c["block_n"]) * c["block_k"] * ELEMENT_BYTES[element]


def _block_seconds(
    product: GpuProduct,
    target: GpuTarget,
    c: Columns,
    parts: NDArray[np.int64],
    held_bytes: NDArray[np.int64],
    efficiency: float,
) -> NDArray[np.float64]:
    """A roofline of whole waves: each block takes what its sums or its operands take."""
    bm, bn = c["block_m"].astype(np.float64), c["block_n"].astype(np.float64)
    blocks = ceil_div(product.m, c["block_m"]) * ceil_div(product.n, c["block_n"])
    blocks = blocks * product.batch * parts
    resident = np.clip(target.shared_bytes // np.maximum(held_bytes, 1), 1, 4)
    waves = ceil_div(blocks, target.multiprocessors * resident) * resident
    k = product.k / parts
    share = target.flops_per_s[product.element] / target.multiprocessors
    # Blocks amortise what each of their rows and columns costs; 20 fits published tables roughly.
    busy = efficiency * bm * bn / (bm * bn + 20 * (bm + bn))
    summed = 2 * bm * bn * k / (share * busy)
    read = (bm + bn) * k * ELEMENT_BYTES[product.element]
    copied = read * target.multiprocessors / target.l2_bytes_per_s
    memory = product.bytes / target.memory_bytes_per_s
    latency = 1e-6 * (1 + 1.0 / c["stages"])
    busiest = np.maximum(np.maximum(summed, copied) * waves, memory)
    return np.asarray(busiest + latency + target.launch_s)

"""Estimates of the registers that a thread of a schedule needs, and of what follows from them: the
share that is spilled, and how many threads a multiprocessor holds at a time.

A thread holds its part of the sums, what it multiplies next, and addresses.  The compiler's own
figures are known only where it is at hand (`codegen/pallas/assembler.py`), so cost models see these
estimates; `make test-aot` compares both.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuAttention, GpuRows
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu.products import STORED_ROWS, WARPGROUP_THREADS
from hlotune.schedules.spaces.gpu.space import Columns
from hlotune.schedules.targets.gpu import GpuTarget

REGISTER_BYTES = 4
WARP = 32
OTHER_REGISTERS, OTHER_REGISTERS_OF_ROWS = 32, 16
"""Registers of addresses, counters and masks, whatever the blocks are, of kernels that multiply and
of those of rows."""
STEP_TERMS = 16
"""Terms of a product that the matrix unit takes at once: so many of an operand are in registers."""
Floats = NDArray[np.float64]


def needed(kernel: AnyGpuKernel, sketch: str, c: Columns, block: tuple[Floats, ...]) -> Floats:
    """Registers a thread, `(n,)`, of a block of rows, columns and terms at a time."""
    rows, columns, depth = block
    threads = threads_of(sketch, c)
    sums, operands = rows * columns / threads, 0.0 * rows
    match kernel:
        case GpuRows() | GpuStages():
            lines = rows / c.get("turns", np.ones_like(threads)) + _parameters(kernel)
            return np.asarray(OTHER_REGISTERS_OF_ROWS + lines * depth / threads)
        case GpuAttention():
            # Scores are there twice for a while, the second time as narrow weights.
            sums = sums + 1.5 * rows * depth / threads
            if sketch.startswith("triton_"):
                operands = _attention_operands(ELEMENT_BYTES[kernel.element], threads, block)
        case _ if sketch.startswith("triton_"):
            fragments = STEP_TERMS * ELEMENT_BYTES[kernel.element] / REGISTER_BYTES
            operands = 2 * (rows + columns) * fragments / threads
    return np.asarray(OTHER_REGISTERS + sums + operands)


def _parameters(kernel: GpuRows | GpuStages) -> int:
    """Lines that all rows have in common: the scale and the offset of a layer norm."""
    return 2 if isinstance(kernel, GpuRows) and kernel.operation == "layer_norm" else 0


def _attention_operands(size: int, threads: Floats, block: tuple[Floats, ...]) -> Floats:
    """Registers of the queries of a warp, and of what it multiplies of keys and values next.

    Warps share the rows first, and the columns where there are more warps than rows for them.
    """
    rows, columns, keys = block
    down = np.minimum(threads / WARP, np.maximum(rows / STEP_TERMS, 1))
    across = threads / WARP / down
    per_element = size / REGISTER_BYTES / WARP
    queries = rows / down * columns * per_element
    return np.asarray(queries + (columns + keys) / across * STEP_TERMS * per_element)


def threads_of(sketch: str, c: Columns) -> Floats:
    """Threads of a block that compute, `(n,)`."""
    if "warps" in c:
        return np.asarray(WARP * c["warps"], np.float64)
    warpgroups = np.full(len(next(iter(c.values()))), 2.0)
    if sketch == "hopper_ring_product":
        warpgroups[c["block_m"] == 3 * STORED_ROWS] = 3
    return np.asarray(WARPGROUP_THREADS * warpgroups)


def limit(target: GpuTarget, threads: Floats) -> Floats:
    """Registers that a thread can have where so many are in a block."""
    return np.minimum(target.thread_registers, target.registers / threads)


def spilled(target: GpuTarget, sketch: str, c: Columns, registers: Floats) -> Floats:
    """The share of a thread's registers that have no room, `(n,)`."""
    most = limit(target, threads_of(sketch, c))
    return np.asarray(np.maximum(registers - most, 0) / registers)


def occupancy(
    target: GpuTarget, sketch: str, c: Columns, registers: Floats, shared_bytes: Floats
) -> Floats:
    """The threads of all blocks that are on a multiprocessor at a time, over the most it takes.

    Args:
        registers: of a thread, `(n,)`.
        shared_bytes: of a block, `(n,)`.
    """
    threads = threads_of(sketch, c)
    taken = np.minimum(registers, limit(target, threads)) * threads
    resident = np.minimum(
        np.minimum(target.registers // taken, target.threads // threads),
        target.shared_bytes // np.maximum(shared_bytes, 1.0),
    )
    return np.asarray(np.maximum(resident, 1.0) * threads / target.threads)

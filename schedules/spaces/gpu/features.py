"""What a cost model sees of schedules for GPUs: blocks, waves, bytes, work, and the knobs.

All kernels are seen as products of blocks: a convolution is one over positions, terms and features,
attention one of queries and keys, and a row kernel has blocks of rows whose sums are its columns.
Numbers are logarithms to base 2 unless their name says that they are a share.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu import (
    ELEMENT_BYTES,
    GpuAttention,
    GpuConvolution,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu.registers import needed, occupancy, spilled
from hlotune.schedules.spaces.gpu.space import (
    Columns,
    Configs,
    GpuSpace,
    ceil_div,
    next_power_of_two,
)
from hlotune.schedules.targets.gpu import GpuTarget

SKETCHES = (
    "triton_product",
    "triton_rows",
    "triton_streamed_rows",
    "triton_long_rows",
    "triton_attention",
    "triton_convolution",
    "triton_merged_taps",
    "triton_padded_windows",
    "hopper_product",
    "hopper_ring_product",
    "hopper_attention",
    "hopper_convolution",
)
"""A feature each.  One that is not here is seen by its numbers alone."""
KNOBS = (
    "stages", "weight_stages", "stores", "warps", "turns", "split_k", "split_n", "group_m", "panel",
    "cluster", "minor_n", "chained", "groups", "rows", "columns", "block",
)  # fmt: skip
"""Knobs that are seen as they are, besides the blocks."""
MEANT = (
    "guess", "work_over_bytes", "block_rows", "block_columns", "block_depth", "blocks", "waves",
    "last_wave_share", "covered_share", "steps", "stage_bytes", "held_share", "sums_per_thread",
    "read_over_bytes", "work_over_guess", "bytes_over_guess", "l2_over_guess", "element_bytes",
    "registers", "spilled_share", "occupancy",
)  # fmt: skip
NAMES = (*MEANT, *(f"knob_{k}" for k in KNOBS), *(f"is_{s}" for s in SKETCHES))
VERSION = 1
"""Rises where a feature changes its meaning but not its name."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Product:
    """The extents of a kernel as a product."""

    rows: int
    columns: int
    terms: int
    batch: int


def features(kernel: AnyGpuKernel, space: GpuSpace, configs: Configs) -> NDArray[np.float32]:
    """`(n, len(NAMES))` of configs `(n, width)` of a kernel's space."""
    made = np.zeros((len(configs), len(NAMES)), dtype=np.float32)
    guesses = space.roofline(configs)
    for sketch, rows, columns in space.by_sketch(configs):
        known = _meant(kernel, space.target, columns, guesses[rows])
        known |= _registers(kernel, space.target, sketch.name, columns)
        known |= {f"knob_{k}": np.log2(1.0 + columns[k]) for k in KNOBS if k in columns}
        if sketch.name in SKETCHES:
            known[f"is_{sketch.name}"] = np.ones(len(rows))
        for name, values in known.items():
            made[rows, NAMES.index(name)] = values
    return made


def _meant(kernel: AnyGpuKernel, target: GpuTarget, c: Columns, guess: Floats) -> dict[str, Floats]:
    whole, size = _as_product(kernel), ELEMENT_BYTES[kernel.element]
    rows, columns, depth = _block(kernel, c)
    blocks = whole.batch * ceil_div(whole.rows, rows) * ceil_div(whole.columns, columns)
    blocks = blocks * c.get("split_k", np.ones_like(rows))
    waves = blocks / target.multiprocessors
    stage = (rows + columns) * depth * size
    held = _held_bytes(kernel, c) / target.block_shared_bytes
    threads = 32 * c["warps"] if "warps" in c else np.full_like(rows, 256)
    read = blocks * (rows + columns) * float(whole.terms) * size
    # Row kernels do not use the matrix unit: their work has no peak of its own.
    peak = target.flops_per_s[kernel.element]
    covered = ceil_div(whole.rows, rows) * rows * (ceil_div(whole.columns, columns) * columns)
    values = {
        "guess": guess * 1e6,
        "work_over_bytes": np.full_like(guess, kernel.flops / kernel.bytes),
        "block_rows": rows,
        "block_columns": columns,
        "block_depth": depth,
        "blocks": blocks,
        "waves": waves,
        "steps": ceil_div(whole.terms, depth),
        "stage_bytes": stage,
        "sums_per_thread": rows * columns / threads,
        "read_over_bytes": read / kernel.bytes,
        "work_over_guess": kernel.flops / peak / guess,
        "bytes_over_guess": kernel.bytes / target.memory_bytes_per_s / guess,
        "l2_over_guess": read / target.l2_bytes_per_s / guess,
        "element_bytes": np.full_like(guess, size),
    }
    shares = {
        "last_wave_share": waves / np.ceil(waves),
        "covered_share": whole.rows * float(whole.columns) / covered,
        "held_share": np.minimum(held, 4.0),
    }
    return {name: np.log2(v) for name, v in values.items()} | shares


def _registers(
    kernel: AnyGpuKernel, target: GpuTarget, sketch: str, c: Columns
) -> dict[str, Floats]:
    block = tuple(np.asarray(extent, np.float64) for extent in _block(kernel, c))
    each = needed(kernel, sketch, c, block)
    in_registers = isinstance(kernel, GpuRows | GpuStages)
    shared = np.zeros_like(each) if in_registers else _held_bytes(kernel, c)
    return {
        "registers": np.log2(each),
        "spilled_share": spilled(target, sketch, c, each),
        "occupancy": occupancy(target, sketch, c, each, shared),
    }


def _held_bytes(kernel: AnyGpuKernel, c: Columns) -> Floats:
    """Shared memory of a block of threads: a block of both operands for each stage."""
    rows, columns, depth = _block(kernel, c)
    stages = c.get("stages", np.ones_like(rows))
    return np.asarray((rows + columns) * depth * ELEMENT_BYTES[kernel.element] * stages, np.float64)


def _as_product(kernel: AnyGpuKernel) -> _Product:
    match kernel:
        case GpuProduct():
            return _Product(kernel.m, kernel.n, kernel.k, kernel.batch)
        case GpuConvolution():
            return _Product(kernel.positions, kernel.features, kernel.terms, 1)
        case GpuAttention():
            return _Product(kernel.queries, kernel.features, kernel.keys, kernel.heads)
        case GpuRows():
            return _Product(kernel.rows, 1, kernel.columns, 1)
        case GpuStages():
            return _Product(kernel.count, 1, kernel.width, 1)


def _block(kernel: AnyGpuKernel, c: Columns) -> tuple[NDArray[np.int64], ...]:
    """Rows, columns and terms that a block of threads has at a time."""
    some = next(iter(c.values()))
    one = np.ones_like(some)
    match kernel:
        case GpuAttention():
            return c["block_q"], one * kernel.features, c["block_k"]
        case GpuRows():
            together = c.get("rows", one) * c.get("turns", one)
            return together, one, c.get("block", one * kernel.columns)
        case GpuStages():
            width = one * next_power_of_two(kernel.width)
            return c["rows"], one, c.get("block", c.get("columns", width))
        case GpuConvolution() if "groups" in c:
            return 8 * c["groups"] * c["rows"] * c["columns"], c["block_n"], one * 64
        case _:
            return c["block_m"], c["block_n"], c.get("block_k", one * 64)

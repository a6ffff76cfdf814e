"""Schedules of row kernels on GPUs: softmax and layer norm.

`triton_rows` holds whole rows in registers, so that each element is read once, and
`triton_streamed_rows` those of the next turn beside them; `triton_long_rows` reads a row block by
block twice, for rows that no thread block can hold.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuRows
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

HELD_REGISTERS = 128
"""Registers of a thread that elements of a row may take."""
IDEAL_ELEMENTS = 16
"""Elements a thread that keep enough loads in flight, 16 bytes each."""


def rows_space(rows: GpuRows, target: GpuTarget) -> GpuSpace:
    """All schedules of a row kernel on a GPU."""
    sketches = (triton_rows(rows, target), triton_long_rows(rows, target))
    return GpuSpace(target, (*sketches, triton_streamed_rows(rows, target)))


def triton_rows(rows: GpuRows, target: GpuTarget) -> GpuSketch:
    """A program takes a few whole rows."""
    width = next_power_of_two(rows.columns)
    knobs = (
        GpuKnob("rows", powers_of_two(1, 16)),
        GpuKnob("turns", (1, 2, 4, 8, 16)),
        GpuKnob("warps", powers_of_two(1, 32)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        each = c["rows"] * width // (32 * c["warps"])
        return (
            Limit(f"at most {HELD_REGISTERS} elements a thread", each <= HELD_REGISTERS),
            Limit("at least 1 element a thread", (each >= 1) | (c["warps"] == 1)),
            Limit("no more rows than there are", c["rows"] <= next_power_of_two(rows.rows)),
            Limit(
                "a block of threads for each multiprocessor where rows are taken in turns",
                (c["turns"] == 1) | (rows.rows >= c["rows"] * c["turns"] * target.multiprocessors),
            ),
        )

    def seconds(c: Columns) -> NDArray[np.float64]:
        together = c["rows"] * c["turns"]
        blocks = ceil_div(rows.rows, together)
        guess = row_seconds(rows.bytes, target, blocks, together, c["rows"] * width, c["warps"])
        parameters = 2 if rows.operation == "layer_norm" else 0
        read = parameters * rows.columns * ELEMENT_BYTES[rows.element] * rows.rows / together
        # Loads of a later turn do not begin before its turn.
        return guess * (1 + 0.01 * np.log2(c["turns"])) + read / target.l2_bytes_per_s

    return GpuSketch("triton_rows", knobs, limits, seconds)


def triton_streamed_rows(rows: GpuRows, target: GpuTarget) -> GpuSketch:
    """A program takes whole rows in turns, and loads the next ones before it computes."""
    whole = triton_rows(rows, target)
    turns = GpuKnob("turns", (2, 4, 8, 16, 32))
    knobs = tuple(turns if k.name == "turns" else k for k in whole.knobs)
    width = next_power_of_two(rows.columns)

    def limits(c: Columns) -> tuple[Limit, ...]:
        twice = 2 * c["rows"] * width // (32 * c["warps"])
        held = Limit(
            f"at most {HELD_REGISTERS} elements a thread of two turns", twice <= HELD_REGISTERS
        )
        return (*whole.limits(c), held)

    def seconds(c: Columns) -> NDArray[np.float64]:
        return whole.seconds(c) * 0.97

    return GpuSketch("triton_streamed_rows", knobs, limits, seconds)


def triton_long_rows(rows: GpuRows, target: GpuTarget) -> GpuSketch:
    """A program goes through one row twice, the second time out of the L2 cache."""
    width = next_power_of_two(rows.columns)
    knobs = (
        GpuKnob("block", powers_of_two(1024, 16384)),
        GpuKnob("warps", powers_of_two(4, 32)),
        GpuKnob("stages", (1, 2, 3)),
    )

    def limits(c: Columns) -> tuple[Limit, ...]:
        each = c["block"] // (32 * c["warps"])
        return (
            Limit(f"at most {HELD_REGISTERS} elements a thread", each <= HELD_REGISTERS),
            Limit("at least 2 elements a thread", each >= 2),
            Limit("blocks shorter than a row", c["block"] < width),
        )

    def seconds(c: Columns) -> NDArray[np.float64]:
        again = rows.bytes / 2 / target.l2_bytes_per_s
        one = np.ones_like(c["block"])
        blocks = one * rows.rows
        return row_seconds(rows.bytes, target, blocks, one, c["block"], c["warps"]) + again

    return GpuSketch("triton_long_rows", knobs, limits, seconds)


def row_seconds(
    moved_bytes: float,
    target: GpuTarget,
    programs: NDArray[np.int64],
    together: NDArray[np.int64],
    held: NDArray[np.int64],
    warps: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Traffic, lengthened where threads have few loads in flight or programs fill no wave.

    A program takes `together` rows, `held` elements at a time.
    """
    each = held / (32.0 * warps)
    flight = 1 + 0.3 * np.abs(np.log2(each / IDEAL_ELEMENTS)) / 4
    resident = np.clip(target.threads // (32 * warps), 1, 16) * target.multiprocessors
    waves = ceil_div(programs, resident) * resident / programs
    barriers = 1 + 0.02 * warps / np.maximum(together, 1) / 4
    return moved_bytes / target.memory_bytes_per_s * flight * waves * barriers + target.launch_s

"""Schedules of any stages over independent rows on GPUs.

`triton_map` has blocks of rows and columns where nothing is reduced; `triton_stages` holds whole
rows in registers, `triton_long_stages` goes through them part by part, once for each stage.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu_stages import GpuStages, loads_of
from hlotune.schedules.spaces.gpu.rows import HELD_REGISTERS, row_seconds
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

LONG_BLOCK = 256
"""Inner points from which on rows may be gone through part by part."""


def stages_space(stages: GpuStages, target: GpuTarget) -> GpuSpace:
    """All schedules of stages over rows on a GPU."""
    if not stages.reduces:
        return GpuSpace(target, (triton_map(stages, target),))
    sketches = (triton_stages(stages, target), triton_long_stages(stages, target))
    space = GpuSpace(target, sketches)
    present = sorted({int(n) for n in space.configs[:, 0]})
    return GpuSpace(target, tuple(sketches[n] for n in present))


def wide_loads(stages: GpuStages) -> int:
    """Blocks of elements that one stage holds at a time, at most."""
    inner = [{a.name for a in s.inner} for s in stages.stages]
    counts = [
        sum(bool(set(x.axes) & own) for x in loads_of(s))
        for s, own in zip(stages.stages, inner, strict=True)
    ]
    return max(1, *counts)


def triton_map(stages: GpuStages, target: GpuTarget) -> GpuSketch:
    """A block of rows and columns a program."""
    width, count = next_power_of_two(stages.width), next_power_of_two(stages.count)
    knobs = (
        GpuKnob("rows", powers_of_two(1, min(count, 1024))),
        GpuKnob("columns", powers_of_two(1, min(width, 2048))),
        GpuKnob("warps", powers_of_two(1, 8)),
    )
    held = wide_loads(stages)

    def limits(c: Columns) -> tuple[Limit, ...]:
        return _limits(stages, c["rows"] * c["columns"], c["warps"], held)

    def seconds(c: Columns) -> NDArray[np.float64]:
        programs = ceil_div(stages.count, c["rows"]) * ceil_div(stages.width, c["columns"])
        elements = c["rows"] * c["columns"]
        guess = row_seconds(stages.bytes, target, programs, c["rows"], elements, c["warps"])
        # Runs of memory shorter than a line are read with what lies beside them.
        short = np.maximum(1.0, 16.0 / c["columns"]) if stages.width > 1 else 1.0
        return guess * (1 + 0.1 * (short - 1))

    return GpuSketch("triton_map", knobs, limits, seconds)


def triton_stages(stages: GpuStages, target: GpuTarget) -> GpuSketch:
    """Some whole rows a program."""
    width = next_power_of_two(stages.width)
    rows = powers_of_two(1, min(next_power_of_two(stages.count), 1024))
    knobs = (GpuKnob("rows", rows), GpuKnob("warps", powers_of_two(1, 32)))
    held = wide_loads(stages)

    def limits(c: Columns) -> tuple[Limit, ...]:
        return _limits(stages, c["rows"] * width, c["warps"], held)

    def seconds(c: Columns) -> NDArray[np.float64]:
        programs = ceil_div(stages.count, c["rows"])
        elements = c["rows"] * width
        return row_seconds(stages.bytes, target, programs, c["rows"], elements, c["warps"])

    return GpuSketch("triton_stages", knobs, limits, seconds)


def triton_long_stages(stages: GpuStages, target: GpuTarget) -> GpuSketch:
    """Some rows a program, and a block of their inner points at a time."""
    width = next_power_of_two(stages.width)
    rows = powers_of_two(1, min(next_power_of_two(stages.count), 128))
    knobs = (
        GpuKnob("rows", rows),
        GpuKnob("block", powers_of_two(16, 8192)),
        GpuKnob("warps", powers_of_two(1, 32)),
        GpuKnob("stages", (1, 2, 3)),
    )
    held = 1 + wide_loads(stages)

    def limits(c: Columns) -> tuple[Limit, ...]:
        shorter = Limit("blocks shorter than a row", c["block"] < width)
        long = Limit(
            f"rows of more than {LONG_BLOCK} inner points",
            np.full(len(width_of(c)), width > LONG_BLOCK),
        )
        return (*_limits(stages, c["rows"] * c["block"], c["warps"], held), shorter, long)

    def seconds(c: Columns) -> NDArray[np.float64]:
        programs = ceil_div(stages.count, c["rows"])
        elements = c["rows"] * c["block"]
        again = stages.bytes * (len(stages.stages) - 1) / target.l2_bytes_per_s
        guess = row_seconds(stages.bytes, target, programs, c["rows"], elements, c["warps"])
        # One program after another goes through a row: few of them leave processors idle.
        steps = ceil_div(width, c["block"]) * len(stages.stages)
        return guess + again + steps * 0.5e-6

    return GpuSketch("triton_long_stages", knobs, limits, seconds)


def width_of(c: Columns) -> NDArray[np.int64]:
    return next(iter(c.values()))


def _limits(
    stages: GpuStages, elements: NDArray[np.int64], warps: NDArray[np.int64], held: int
) -> tuple[Limit, ...]:
    each = elements // (32 * warps)
    return (
        Limit(
            f"at most {HELD_REGISTERS} elements a thread, of {held} blocks",
            np.maximum(each, 1) * held <= max(HELD_REGISTERS, held),
        ),
        Limit("at least 1 element a thread", (each >= 1) | (warps == 1)),
    )

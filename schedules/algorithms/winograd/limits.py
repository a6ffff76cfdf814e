"""The limits of `schedules/steps/limits.py` for schedules of a Winograd algorithm, as arrays of
configs, by the formulas of `schedules/steps/limit_formulas.py`.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.winograd.sketch import WHEN
from hlotune.schedules.algorithms.winograd.view import WinogradView
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.steps.limit_formulas import (
    CALL_BYTES,
    TASK_BYTES,
    bodies_of,
    has_code,
    tile_registers,
    vectors_of,
    whole_blocks,
)
from hlotune.schedules.targets.cpu import LINE_BYTES

IN_TASK = WHEN.index("task")


@dataclass(frozen=True)
class Numbers:
    """What `n` configs stand for, `(n,)` each; parts that are cut at the end of their axis."""

    when: Ints
    """Position in WHEN."""
    apart: NDArray[np.bool_]
    """Whether the inputs at the points are computed before all products."""
    tiles: Ints
    rows: Ints
    across: Ints
    """Vectors of a panel."""
    panels: Ints
    unroll: Ints
    prefetch: Ints
    depth: Ints
    """Steps of the last reduction whose weights are there at once."""
    sums: tuple[Ints, ...]
    """How much of each reduction is added one to another, outermost first."""
    spread: Ints


def fit(space: WinogradView, n: Numbers) -> NDArray[np.bool_]:
    """`(n,)`: whether registers, code and scratch are within the limits."""
    points, tiles, features = space.sizes
    size, width = BYTES[space.contraction.dtype], np.minimum(n.across * space.lanes, features)
    rows, across = np.minimum(n.rows, n.tiles), vectors_of(width, space.lanes)
    channels = [a.extent for a in space.contraction.reduce]
    group = np.minimum(n.panels * n.across * space.lanes, features)
    bodies = bodies_of(features, n.across * space.lanes, group)
    own = bodies_of(n.tiles, n.rows, n.tiles) * bodies_of(channels[-1], n.unroll, n.sums[-1])
    result = tile_registers(rows, across) <= space.target.vector_registers
    result &= has_code(rows * across * n.unroll * own * bodies)
    result &= has_code(across * len(space.compute.stages[-1].stores) * bodies)
    depth = float(prod(channels))
    line = points * LINE_BYTES  # left free behind each point
    blocks = np.where(n.apart, whole_blocks(tiles, n.tiles), n.tiles)
    inputs = points * blocks * depth * size
    result &= inputs + n.spread * line <= np.where(n.apart, CALL_BYTES, TASK_BYTES)
    result &= points * n.tiles * width * size + n.spread * line <= TASK_BYTES
    panel = n.across * space.lanes
    weights = points * depth * whole_blocks(features, panel) * size
    result &= (n.when != WHEN.index("call")) | (weights <= CALL_BYTES)
    part = points * (depth / channels[-1]) * n.depth * width * size + line
    result &= (n.when != IN_TASK) | (part <= TASK_BYTES)
    legal: NDArray[np.bool_] = result
    return legal

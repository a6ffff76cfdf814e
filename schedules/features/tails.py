"""What happens at the edges of a nest: tasks that are cut short, windows that leave their tensors,
and panels that are filled up.  Arrays over populations, as in `loop_levels.py`.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.footprint import Floats
from hlotune.schedules.features.loop_levels import PARALLEL, Levels
from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.patterns.contraction import Contraction

Masks = NDArray[np.bool_]


def evenness(v: Levels) -> Floats:
    """`(n,)`: mean time of the threads over that of the first, which has the largest tasks.

    Tasks lie in one order and each thread takes neighbours; those at the end of an axis are smaller
    where its extent is no multiple of a task's.
    """
    threads = v.target.threads
    levels = np.arange(len(v.trips)).reshape(-1, 1)
    inside = np.where(levels < v.task, v.trips, 1).prod(axis=0).astype(np.int64)
    place = -(-inside // threads)
    share, left = np.zeros(v.count), np.ones(v.count)
    for k in range(int(v.task.max(initial=0))):
        is_task = v.kind[k] == PARALLEL
        inside = np.where(is_task, inside // v.trips[k].astype(np.int64), inside)
        whole, rest = np.divmod(place, inside)
        place = np.where(is_task, rest, place)
        done, next_one = _walked(v, k, whole), _walked(v, k, whole + 1)
        share += np.where(is_task, left * done, 0)
        left *= np.where(is_task, next_one - done, 1)
    share += np.where(place > 0, left, 0)
    even: Floats = (1 / (threads * share)).astype(np.float32)
    return even


def _walked(v: Levels, k: int, iterations: Ints) -> Floats:
    """Share of its axis that the first iterations of a loop walk."""
    axis = np.maximum(v.axis[k], 0)
    extent, step = v.extents[axis], v.steps[axis, k + 1, np.arange(v.count)]
    walked: Floats = np.minimum(iterations * step, extent) / extent
    return walked


@lru_cache(maxsize=64)
def window_axes(c: Contraction, operand: int) -> tuple[tuple[int, frozenset[str], int], ...]:
    """Parallel axes along which windows of an operand leave their tensor.

    With each its number, the axes that move its windows, and these as bits.
    """
    x, names = c.operands[operand], [a.name for a in (*c.parallel, *c.reduce)]
    found = []
    for number, axis in enumerate(c.parallel):
        if x in c.windows[axis.name]:
            moving = {a for e in x.index for a, _ in e.terms if axis.name in e.coefficients}
            clipped = sum(1 << names.index(a) for a in moving)
            found.append((number, frozenset(moving), clipped))
    return tuple(found)


def open_axes(v: Levels, operand: int) -> list[tuple[int, frozenset[str], Masks]]:
    """Parallel axes along which the loads of an operand are checked where they stand.

    With each its number, those of all axes that move its windows, and the nests: neither peeled nor
    clipped, and the operand read where it lies.
    """
    clips, peels = v.path.borders.T
    found = []
    for number, moving, clipped in window_axes(v.c, operand):
        handled = ((peels >> number) & 1) | (clips & clipped)
        found.append((number, moving, v.is_plain[operand] & (handled == 0)))
    return found


def open_borders(v: Levels) -> tuple[Floats, Floats, Floats]:
    """`(n,)` each: open axes other than the lanes', 1 where the lanes' is open, checks of rows."""
    rows, lanes, checks = (np.zeros(v.count, np.float32) for _ in range(3))
    for k in range(len(v.is_plain)):
        deepest = np.zeros(v.count, np.int64)
        is_open = np.zeros(v.count, np.bool_)
        for number, moving, mask in open_axes(v, k):
            along = v.lane_axis == number
            rows += mask & ~along
            lanes = np.maximum(lanes, mask & along)
            deepest = np.maximum(deepest, np.where(mask, v.moved_at(moving), 0))
            is_open |= mask
        if is_open.any():
            checks += np.where(is_open, v.at(v.runs, deepest) * v.tile[0], np.float32(0))
    return rows, lanes, checks


def padding(v: Levels) -> Floats:
    """`(operands, n)`: elements of a copy in whole panels over those that it holds, 1 without."""
    panel = v.path.panels.T[: len(v.is_plain)].astype(np.float32)
    steps = v.at_axis(v.steps, np.maximum(v.lane_axis, 0), np.maximum(v.packs[: len(panel)], 0))
    full = np.ceil(steps / panel) * panel / steps
    in_panels = ~v.is_plain & (panel > 1) & (v.lane_axis >= 0)
    filled: Floats = np.where(in_panels, full, np.float32(1))
    return filled

"""How the first candidate walks its reductions: what is written out, left out, and in what order.

Taps on padding are left out where they are a share of the work, short reductions have no loops, and
what is packed is read in the order in which it lies.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.flops import points
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.window_reuse import (
    SHORT_REDUCTION,
    rolling,
    written_taps,
)
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.spaces.knobs import LONGEST_UNROLL
from hlotune.schedules.steps.limit_formulas import CODE_STATEMENTS
from hlotune.schedules.targets.machine import PAGE_BYTES

PADDING_WORTH = 0.02
"""Share of the taps along an axis from which on leaving out padding pays."""
SHORT_PASS = 12
"""Cycles of multiply-adds from which on a pass hides its branch and its addresses: where a step has
six, steps by twos and fours were 3 % faster than one by one, and where it has four, 7 %."""
LONG_LINE = 6
"""Steps of a reduction from which on it is worth a loop of its own inside of others."""
LONG_PASS = 40
"""The same of a product, whose one reduction is a long stream: on a Zen 3, whose steps have six
cycles, passes of eight took 0.83 to 0.93 of the time of those of two.  Convolutions took up to 1.7
of it."""


def left_out(
    space: ContractionSpace, sketch: Sketch, tile: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Unrolled steps of each reduce axis, and which clips to make, to leave padding out.

    A tile of one row is clipped; a tile as long as its axis has its window written out, so that
    each tap on padding is known while emitting.  A tile of one phase is clipped to the taps of it.
    """
    c = space.contraction
    rows = {a.name: (int(n), a.extent) for a, n in zip(c.parallel, tile, strict=True)}
    packed = {tensor for tensor, level in sketch.packs if level != "none"}
    unroll = {r.name: 1 for r in c.reduce}
    clip = {space.knobs.knobs[k].axis: 0 for k in space.knobs.columns("clip")}
    for x in (x for x in c.core.loads if x.tensor not in packed):
        for d, extent in enumerate(c.compute.tensor(x.tensor).shape):
            window = [a for a in x.index[d].coefficients if a in clip]
            along = [a for a in x.index[d].coefficients if a in rows]
            if len(window) != 1 or not along or sketch.vector in along:
                continue
            real, total = points(c.core, x, d, extent)
            worth = 1 - real / total >= PADDING_WORTH
            height, whole = (prod(n) for n in zip(*(rows[a] for a in along), strict=True))
            clip[window[0]] = int(height == 1)
            if worth and height >= whole > 1:
                unroll[window[0]] = c.core.extents[window[0]]
    for r, phases in c.phases.items():
        if r in clip and all(rows[a][0] == 1 for a in phases):
            unroll[r], clip[r] = 1, 1
    return np.array(list(unroll.values())), np.array(list(clip.values()), dtype=np.int64)


def lying_order(space: ContractionSpace, sketch: Sketch) -> list[int]:
    """Numbers of the reduce axes, outermost first: as what is packed ahead for the vectors lies.

    It then comes in one stream, whatever the order of its dimensions.  Where each multiply-add
    waits for a load, the taps that can share it are innermost.  Where nothing is packed ahead, what
    lies near is.
    """
    c = space.contraction
    last = rolling(c, sketch.vector)
    if last is not None:
        return sorted(range(len(c.reduce)), key=lambda k: c.reduce[k] == last)
    ahead = {tensor for tensor, level in sketch.packs if level in ("load", "call")}
    found = [x for x in c.operands if x.tensor in ahead and c.stride(x, sketch.vector)]
    if not found:
        far = far_axes(c)
        return [*far, *(k for k in range(len(c.reduce)) if k not in far)]
    places = {
        r.name: min((d for d, e in enumerate(x.index) if r.name in e.coefficients), default=-1)
        for x in found[:1]
        for r in c.reduce
    }
    return sorted(range(len(c.reduce)), key=lambda k: places.get(c.reduce[k].name, k))


def far_axes(c: Contraction) -> list[int]:
    """Numbers of the reduce axes of which each step reads another page of every operand, those of
    the longest steps first, where some other axis is long; else none.

    Gradients of weights have such, images and their lines.  Images lie in the same sets of the
    caches, which hold few lines of so many: a reduction had better go along a line.
    """
    bytes_of = [_least_step_bytes(c, r.name) for r in c.reduce]
    far = [k for k, n in enumerate(bytes_of) if n >= PAGE_BYTES]
    near = [r for k, r in enumerate(c.reduce) if k not in far]
    has_lines = any(r.extent >= LONG_LINE for r in near)
    return sorted(far, key=lambda k: -bytes_of[k]) if has_lines else []


def reads_lines(c: Contraction) -> bool:
    """Whether there are such axes, and each step of a sum reads other elements than their
    neighbours of every operand, as in gradients of weights with channels innermost."""
    return bool(far_axes(c)) and all(c.step_bytes(x) > c.element_bytes(x) for x in c.operands)


def _least_step_bytes(c: Contraction, axis: str) -> int:
    """Bytes between what neighbours along a reduction read of the operand in which they are
    nearest."""
    return min((abs(c.stride(x, axis)) * c.element_bytes(x) for x in c.operands), default=0)


def written_out(
    space: ContractionSpace,
    vector: str,
    tile: NDArray[np.int64],
    order: list[int],
    unroll: NDArray[np.int64],
    clip: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A reduction so short that its loops would cost as much as its steps has none.

    Nor has a short axis that has come to be the innermost; of a long one several steps make a pass
    where one is short.
    """
    extents = np.array([a.extent for a in space.contraction.reduce])
    statements = np.prod(extents) * np.prod(tile)
    short = np.prod(extents) <= SHORT_REDUCTION
    if short and statements <= CODE_STATEMENTS // 2:
        return extents, np.zeros_like(clip)
    k = order[-1]
    axis = space.contraction.reduce[k].name
    names = [space.knobs.knobs[n].axis for n in space.knobs.columns("clip")]
    clipped = {a for a, on in zip(names, clip, strict=True) if on}
    if axis in clipped:
        return unroll, clip
    moved = order != sorted(order) and extents[k] <= LONGEST_UNROLL
    moved |= space.contraction.reduce[k] in written_taps(space.contraction, vector)
    whole = moved and extents[k] * np.prod(tile) <= CODE_STATEMENTS // 8
    steps = extents[k] if whole else max(unroll[k], _steps_of_a_pass(space, tile, int(extents[k])))
    return np.where(np.arange(len(unroll)) == k, steps, unroll), clip


def _steps_of_a_pass(space: ContractionSpace, tile: NDArray[np.int64], extent: int) -> int:
    """Steps of the innermost loop that are written out: the fewest that last long enough and
    leave no rest; of products a power of two."""
    cycles = int(np.prod(tile)) / space.target.multiply_adds
    whole = [n for n in range(1, min(extent, LONGEST_UNROLL) + 1) if extent % n == 0]
    fewest = next((n for n in whole if n * cycles >= SHORT_PASS), 1)
    if cycles >= SHORT_PASS or len(space.contraction.reduce) > 1:
        return fewest
    doubled = [n for n in whole if n & (n - 1) == 0]
    return max(fewest, next((n for n in doubled if n * cycles >= LONG_PASS), doubled[-1]))

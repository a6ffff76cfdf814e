"""Reductions in chunks, for the first candidate: where operands would come from far for each tile.

Each register tile reads its vectors over its whole reduction.  Where these are more than the second
cache holds, the next tile reads them from behind it again, unless all tiles take a chunk of the
reduction before the next one begins.  The same where an operand lies across the reduction, as in
gradients of weights: a tile uses a part of each of its lines, and comes to the next line at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.reduction_loops import reads_lines
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch, has_rows, is_panelled
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget

FAR_SHARE = 1.5
"""How many times L2 what is read again must be to come from behind it: a part of less stays, and
chunks lost time there."""
LEAST_STEPS = 64
"""Steps of a chunk for which it is worth it to read sums and write them again."""
CHUNK_SHARE = 0.4
"""Share of the second cache for what a chunk of the reduction reads again."""


def is_far(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether tiles wait for vectors that one after the other reads from behind the second cache.

    Each register tile reads them over its whole reduction, so that they are gone when the next one
    begins.
    """
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    again = [
        x
        for x in c.operands
        if c.stride(x, sketch.vector) and any(a.name not in x.axes for a in c.parallel)
    ]
    if len(again) != 1 or any(level == "task" for _, level in sketch.packs):
        return False
    rest = [a for a in t.group if a != sketch.vector]
    step_bytes = t.register[sketch.vector] * space.target.vector_bytes
    steps = prod(a.extent for a in c.reduce if a.name in again[0].axes)
    tile = np.array([t.register[a.name] for a in c.parallel])
    waits = waits_for_far(c, space.target, sketch.vector, tile)
    far = step_bytes * steps > FAR_SHARE * space.target.l2_bytes
    return (
        waits and far and t.group_order[0] == sketch.vector and prod(t.group[a] for a in rest) > 1
    )


def waits_for_far(c: Contraction, target: CpuTarget, vector: str, tile: NDArray[np.int64]) -> bool:
    """Whether a step of a tile reads vectors from behind the second cache for longer than it
    multiplies; `tile` has rows and vectors by axis."""
    across = int(tile[[a.name for a in c.parallel].index(vector)])
    cycles = int(np.prod(tile)) / target.multiply_adds
    return max(LINE_BYTES, across * target.vector_bytes) / target.rates.l3_bytes > cycles


def is_packed_far(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether a call packs more than the second cache holds, of which each task reads its own part.

    The copy would go out to the third cache and come back; by chunks it stays near.
    """
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    shared = all(
        t.register[a.name] * t.block[a.name] * t.group[a.name] >= a.extent
        for a in c.parallel
        if a.name != sketch.vector and not _tells_panels_apart(c, a.name, sketch)
    )
    return shared and any(
        level == "call"
        and is_panelled(c, tensor, sketch.vector)
        and c.compute.tensor(tensor).bytes > space.target.l2_bytes
        for tensor, level in sketch.packs
    )


def _tells_panels_apart(c: Contraction, axis: str, sketch: Sketch) -> bool:
    """Whether an axis walks the dimension that is in panels, as groups do."""
    panelled = (x for x in c.operands if is_panelled(c, x.tensor, sketch.vector))
    return any({axis, sketch.vector} <= {*e.coefficients} for x in panelled for e in x.index)


def lies_across(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether tiles share the lines of an operand, or read lines of several pages again, and all
    lines are more than the second cache."""
    c, sketch = space.contraction, space.sketches[int(config[0])]
    if any(level != "none" for _, level in sketch.packs):
        return False
    size_bytes = sum(c.compute.tensor(x.tensor).bytes for x in c.operands)
    shared = any(has_rows(c, x) for x in c.operands if not c.stride(x, sketch.vector))
    return size_bytes > space.target.l2_bytes and (
        shared or (reads_lines(c) and _reads_again(space, config))
    )


def _reads_again(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether several tiles read the same vectors."""
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    along = [x for x in c.operands if c.stride(x, sketch.vector)]
    return any(t.block[a] * t.group[a] > 1 for x in along for a in t.group if a not in x.axes)


def in_short_chunks(space: ContractionSpace, config: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same tiles as one block, and as little of the reduction at a time as is worth it."""
    t, sketch = space.tiling(config), space.sketches[int(config[0])]
    chunked = config.copy()
    chunked[0] = space.sketches.index(replace(sketch, chunked=True))
    tiles = np.array([t.group[a.name] for a in space.contraction.parallel])
    space.knobs.put(chunked, "block", tiles)
    space.knobs.put(chunked, "group", np.ones_like(tiles))
    space.knobs.put(chunked, "steps", _short_steps(space, t.reduce_order, t.unroll))
    return chunked if space.legal(chunked[None])[0] else config


def _short_steps(
    space: ContractionSpace, order: Sequence[str], unroll: dict[str, int]
) -> NDArray[np.int64]:
    """Iterations of each reduce axis in a chunk: of the inner ones all, of the next ones few."""
    found, steps, extents = dict[str, int](), 1, space.contraction.core.extents
    for r in reversed(order):
        most = -(-extents[r] // unroll[r])
        wanted = -(-LEAST_STEPS // (steps * unroll[r]))
        found[r] = most if most <= 2 * wanted else wanted
        steps *= found[r] * unroll[r]
    return np.array([found[r.name] for r in space.contraction.reduce])


def in_chunks(space: ContractionSpace, config: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same tiles as one block a panel, and the reduction in chunks that the cache holds.

    What a call would pack for all tasks is packed by chunks where these share nothing of it.
    """
    t, sketch = space.tiling(config), space.sketches[int(config[0])]
    names = [a.name for a in space.contraction.parallel]
    near = {"call": "chunk"} if is_packed_far(space, config) else {}
    apart = {a for a in names if near and _tells_panels_apart(space.contraction, a, sketch)}
    rows = [a not in {sketch.vector, *apart} for a in names]
    tiles = np.array([t.group[a] for a in names])
    chunked = config.copy()
    packs = tuple((x, near.get(level, level)) for x, level in sketch.packs)
    chunked[0] = space.sketches.index(replace(sketch, chunked=True, packs=packs))
    space.knobs.put(chunked, "block", np.where(rows, tiles, 1))
    space.knobs.put(chunked, "group", np.where(rows, 1, tiles))
    order = [[r.name for r in space.contraction.reduce].index(r) for r in t.reduce_order]
    vectors = t.register[sketch.vector]
    steps = _steps(space, order, t.unroll, vectors)
    if near:  # copies of parts of other sizes are made element by element
        trips = [-(-r.extent // t.unroll[r.name]) for r in space.contraction.reduce]
        steps = np.array([_divisor(n, most) for n, most in zip(trips, steps, strict=True)])
        if np.prod(steps) * prod(t.unroll.values()) < LEAST_STEPS:
            return config
    space.knobs.put(chunked, "steps", steps)
    return chunked if space.legal(chunked[None])[0] else config


def _divisor(trips: int, most: int) -> int:
    """The largest number of steps up to `most` that leaves no rest."""
    return next(n for n in range(int(most), 0, -1) if trips % n == 0)


def _steps(
    space: ContractionSpace, order: list[int], unroll: dict[str, int], vectors: int
) -> NDArray[np.int64]:
    """Iterations of each reduce axis in a chunk: of the outer ones few."""
    left = CHUNK_SHARE * space.target.l2_bytes / (vectors * space.target.vector_bytes)
    left /= prod(unroll.values())
    found = np.ones(len(order), dtype=np.int64)
    for k in reversed(order):
        r = space.contraction.reduce[k]
        found[k] = max(1, min(-(-r.extent // unroll[r.name]), int(left)))
        left /= found[k]
    return found

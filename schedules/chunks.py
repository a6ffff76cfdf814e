"""Reductions in chunks, for the first candidate: where vectors would come from far for each tile.

Each register tile reads its vectors over its whole reduction.  Where these are more than the second
cache holds, the next tile reads them from behind it again, unless all tiles take a chunk of the
reduction before the next one begins.
"""

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hlotune.schedules.cpu import CpuSpace

THIRD_CACHE_BYTES = 10
"""What the third cache gives a thread in a cycle."""
FAR_SHARE = 2
"""Of the second cache from which on what is read again comes from behind it: of less a part stays,
and chunks lost time where they were tried on it."""
CHUNK_SHARE = 0.4
"""Share of the second cache for what a chunk of the reduction reads again."""


def is_far(space: "CpuSpace", config: NDArray[np.int32]) -> bool:
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
    waits = step_bytes / THIRD_CACHE_BYTES > prod(t.register.values()) / 2
    far = step_bytes * steps > FAR_SHARE * space.target.l2_bytes
    return (
        waits and far and t.group_order[0] == sketch.vector and prod(t.group[a] for a in rest) > 1
    )


def in_chunks(space: "CpuSpace", config: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same tiles as one block a panel, and the reduction in chunks that the cache holds."""
    t, sketch = space.tiling(config), space.sketches[int(config[0])]
    names = [a.name for a in space.contraction.parallel]
    rows = [a != sketch.vector for a in names]
    tiles = np.array([t.group[a] for a in names])
    chunked = config.copy()
    chunked[0] = space.sketches.index(replace(sketch, chunked=True))
    space.knobs.put(chunked, "block", np.where(rows, tiles, 1))
    space.knobs.put(chunked, "group", np.where(rows, 1, tiles))
    space.knobs.put(chunked, "steps", _steps(space, t.unroll, t.register[sketch.vector]))
    return chunked if space.legal(chunked[None])[0] else config


def _steps(space: "CpuSpace", unroll: dict[str, int], vectors: int) -> NDArray[np.int64]:
    """Iterations of each reduce axis in a chunk: of the outer ones few."""
    left = CHUNK_SHARE * space.target.l2_bytes / (vectors * space.target.vector_bytes)
    left /= prod(unroll.values())
    found = []
    for r in reversed(space.contraction.reduce):
        found.append(max(1, min(-(-r.extent // unroll[r.name]), int(left))))
        left /= found[-1]
    return np.array(found[::-1])

"""Rows that lie pages apart, read a page at a time, for the first candidate.

A register tile reads a few lines of each row of an operand over the whole reduction.  Where rows
are pages apart, the next tile along them comes back to the same pages after all other tiles have
read the same lines, and processors fetch nothing ahead: each line is waited for.  Here each row of
tiles goes along a whole page of every row before the next one begins; what it reads stays in the
second cache meanwhile, and lines that follow each other are read and written one after the other.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.targets.machine import PAGE_BYTES

CACHED_SHARE = 0.4
"""Share of the second cache for the pages that a row of tiles reads."""


def lies_in_pages(space: ContractionSpace, config: NDArray[np.int32]) -> bool:
    """Whether rows of tiles share an operand that comes from behind the second cache by pages."""
    return any(_is_shared(space, config, x) and _tiles(space, config, x) > 1 for x in _rows(space))


def page_by_page(space: ContractionSpace, config: NDArray[np.int32]) -> NDArray[np.int32]:
    """The same tiles in blocks of a page along the vectors, all rows that share it in a block."""
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    x = next(x for x in _rows(space) if _is_shared(space, config, x))
    names, page = [a.name for a in c.parallel], _tiles(space, config, x)
    block, group = dict(t.block), dict(t.group)
    shared = [a.name for a in c.parallel if a.name not in x.axes]
    whole = {a.name: -(-a.extent // t.register[a.name]) for a in c.parallel}
    v, mine = sketch.vector, t.block[sketch.vector] * t.group[sketch.vector]
    if any(t.block[a] * t.group[a] < whole[a] for a in shared):  # each thread would read it all
        mine = -(-whole[v] // (space.lanes * space.target.threads))
    block |= {v: page, **{a: whole[a] for a in shared}}
    group |= {v: -(-mine // page), **dict.fromkeys(shared, 1)}
    result = config.copy()
    space.knobs.put(result, "block", np.array([block[a] for a in names]))
    space.knobs.put(result, "group", np.array([group[a] for a in names]))
    last = names.index(v)
    order = [*(k for k in range(len(names)) if k != last), last]
    rows = np.flatnonzero((space.knobs.orders["tile_order"] == order).all(axis=1))
    if len(rows):
        result[1 + space.knobs.columns("tile_order")[0]] = int(rows[0])
    return result if space.legal(result[None])[0] else config


def _rows(space: ContractionSpace) -> tuple[Load, ...]:
    """Operands that are more than the second cache holds, each step of a sum a page of its own."""
    c, found = space.contraction, []
    for x in c.operands:
        apart = c.step_bytes(x) >= PAGE_BYTES
        if apart and c.compute.tensor(x.tensor).bytes > space.target.l2_bytes:
            found.append(x)
    return tuple(found)


def _is_shared(space: ContractionSpace, config: NDArray[np.int32], x: Load) -> bool:
    """Whether an operand is read in vectors where it lies, by several rows of tiles of a task."""
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    plain = dict(sketch.packs).get(x.tensor) == "none" and c.stride(x, sketch.vector) == 1
    again = prod(t.block[a.name] * t.group[a.name] for a in c.parallel if a.name not in x.axes)
    return plain and not sketch.chunked and again > 1


def _tiles(space: ContractionSpace, config: NDArray[np.int32], x: Load) -> int:
    """Register tiles along the vectors that read a page of each row."""
    c, t, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    tile_bytes = t.register[sketch.vector] * space.target.vector_bytes
    steps = prod(r.extent for r in c.reduce if r.name in x.axes)
    room = CACHED_SHARE * space.target.l2_bytes / (steps * tile_bytes)
    return max(1, min(PAGE_BYTES // tile_bytes, int(room)))

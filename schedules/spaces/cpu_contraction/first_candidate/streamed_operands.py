"""The first candidate where an operand comes from memory and each of its elements is used little.

A product of few rows reads its second operand once.  A register tile over the whole reduction
would read it in pieces of a row, each in a page of its own, and processors fetch nothing ahead
from one page to the next.  So the reduction is cut: a few rows of the operand at a time are read
along their whole length, while the sums wait in the cache.  The same where a reduction is so long
that what one tile reads has left the cache when the next tile reads it again.
"""

from dataclasses import replace
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace

APART_BYTES = 2048
"""Between rows from which on a tile's piece of each is read from a page of its own, or nearly."""
REPAYS_PACKING = 16
"""Operations on a byte of an operand from which on copying it first is little work."""
LEAST_ROWS, MOST_ROWS = 8, 64
"""Rows of the operand that are read side by side."""
ASKED_SHARE = 0.25
"""The share of L2 for rows that are asked for while as many others are used."""
ASKED_RESULTS = 2
"""Results of a row from which on there is time to ask for the next rows, whichever cache has them;
with one result there is time only where they come from memory."""
LEAST_VECTORS, MOST_VECTORS = 3, 8
"""Vectors of a row that are read in one go."""
MOST_WASTE = 1.05
"""Vectors of all tiles, as a multiple of those that a row has."""
UNROLLED = 4
SUMS_SHARE = 0.25
"""The share of L2 for the sums that wait."""

Wanted = dict[str, NDArray[np.int64]]
"""By kind of knob: a value for each of its axes."""


def streams(space: ContractionSpace, sketch: Sketch, tile: NDArray[np.int64]) -> bool:
    """Whether an operand that is read in vectors, where it lies, comes from memory in pieces, or
    again for each row of tiles; `tile` has rows and vectors by axis."""
    if len(space.contraction.reduce) != 1 or not _plain(space, sketch):
        return False
    return _in_pieces(space, sketch) or _comes_again(space, sketch, tile)


def _plain(space: ContractionSpace, sketch: Sketch) -> list[Load]:
    """Operands that are read in vectors where they lie."""
    c, packed = space.contraction, {t for t, level in sketch.packs if level != "none"}
    return [x for x in c.operands if x.tensor not in packed and c.stride(x, sketch.vector) == 1]


def _in_pieces(space: ContractionSpace, sketch: Sketch) -> bool:
    return any(_comes_in_pieces(space, x) for x in _plain(space, sketch))


def _comes_in_pieces(space: ContractionSpace, x: Load) -> bool:
    c = space.contraction
    size_bytes = c.compute.tensor(x.tensor).bytes
    often = c.core.flops / size_bytes >= REPAYS_PACKING
    return c.step_bytes(x) >= APART_BYTES and size_bytes > space.target.l2_bytes and not often


def _comes_again(space: ContractionSpace, sketch: Sketch, tile: NDArray[np.int64]) -> bool:
    """Whether several rows of tiles read vectors of which the second cache cannot hold a tile's."""
    c, target = space.contraction, space.target
    names = [a.name for a in c.parallel]
    rows = [ceil(a.extent / n) for a, n in zip(c.parallel, tile, strict=True) if
            a.name not in (sketch.vector, *c.apart)]  # fmt: skip
    vectors = int(tile[names.index(sketch.vector)])
    panel_bytes = c.reduce[0].extent * vectors * target.vector_bytes
    return prod(rows) > 1 and panel_bytes > target.l2_bytes


def whole_rows(
    space: ContractionSpace, sketch: Sketch, tile: NDArray[np.int64]
) -> tuple[Sketch, Wanted, dict[str, list[int]]]:
    """The sketch, the values of knobs, and the orders; `tile` has rows and vectors by axis."""
    c, lanes = space.contraction, space.lanes
    names, extents = [a.name for a in c.parallel], np.array([a.extent for a in c.parallel])
    v = names.index(sketch.vector)
    tile = _shared_rows(space, v, tile) if _in_pieces(space, sketch) else tile.copy()
    tile[v] = _vectors(space, int(np.prod(np.delete(tile, v))), int(extents[v]))
    tiles = -(-extents // np.where(np.arange(len(names)) == v, tile * lanes, tile))
    block = tiles.copy()
    block[v] = _tiles_of_a_task(space, v, int(tile[v]), int(tiles[v]))
    block = np.where([n in c.apart for n in names], 1, block)
    if block[v] == tiles[v] and not c.apart:
        k = int(np.argmax(np.where(np.arange(len(tiles)) == v, 0, tiles)))
        block[k] = ceil(tiles[k] / space.target.threads)
    row_bytes = int(block[v] * tile[v]) * space.target.vector_bytes
    results = prod(extents.tolist()) // int(extents[v])
    rows = _rows_at_once(space, results, row_bytes)
    passes = max(c.compute.tensor(x.tensor).bytes for x in _plain(space, sketch))
    asked = results >= ASKED_RESULTS or passes > space.target.l3_bytes
    unroll = min(UNROLLED, c.reduce[0].extent)
    others = [k for k in range(len(names)) if k != v]
    wanted = {
        "register": tile,
        "block": block,
        "group": np.ones_like(tile),
        "unroll": np.array([unroll]),
        "steps": np.array([ceil(rows / unroll)]),
        "prefetch": np.array([2 if asked else 0]),
    }
    orders = {"group_order": [v, *others], "tile_order": [v, *others]}
    return replace(sketch, chunked=True), wanted, orders


def _shared_rows(space: ContractionSpace, v: int, tile: NDArray[np.int64]) -> NDArray[np.int64]:
    """The tile with as many rows as leave registers for a few vectors, in equal shares: each row
    more is one reading of the operand less."""
    c = space.contraction
    long = [k for k, a in enumerate(c.parallel) if k != v and a.extent > 1]
    wanted = np.where(np.arange(len(tile)) == v, tile, 1)
    if len(long) != 1 or c.parallel[long[0]].name in c.apart:
        return tile.copy()
    extent = c.parallel[long[0]].extent
    most = max(1, (space.target.vector_registers - 1) // LEAST_VECTORS - 1)
    wanted[long[0]] = ceil(extent / ceil(extent / most))
    return wanted


def _vectors(space: ContractionSpace, rows: int, extent: int) -> int:
    """Vectors of a row that are read in one go: as many as registers hold, few of them in vain."""
    needed = ceil(extent / space.lanes)
    most = min(MOST_VECTORS, needed, max(1, (space.target.vector_registers - 1) // (rows + 1)))
    waste = {n: ceil(needed / n) * n / needed for n in range(1, most + 1)}
    return max(n for n, w in waste.items() if w <= MOST_WASTE)


def _rows_at_once(space: ContractionSpace, results: int, row_bytes: int) -> int:
    """The more results a row of the operand has, the more rows it takes to be worth their sums."""
    room = int(ASKED_SHARE * space.target.l2_bytes / row_bytes)
    return max(LEAST_ROWS, min(MOST_ROWS, room, 2 * results**2))


def _tiles_of_a_task(space: ContractionSpace, v: int, vectors: int, tiles: int) -> int:
    """An equal share for each thread, in blocks whose sums the cache holds."""
    c, target = space.contraction, space.target
    rows = prod(a.extent for k, a in enumerate(c.parallel) if k != v)
    room = SUMS_SHARE * target.l2_bytes / (rows * vectors * target.vector_bytes)
    share = ceil(tiles / target.threads)
    return ceil(share / max(1, ceil(share / max(1.0, room))))

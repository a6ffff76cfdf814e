"""The first candidate for attention: numbers by formulas of extents and target."""

from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.patterns.attention import FEATURE, KEY, OUT, ROW, SCORES, VALUES
from hlotune.schedules.spaces.cpu_attention.view import AttentionKnobs, put

FEW_ROWS = 12
"""Queries that share keys up to which these are read as they lie: a copy of the keys takes longer
than what a better register tile saves."""
SHARE_OF_L2 = 4
"""A block's scores take this part of the second cache: keys and values take the rest."""
MOST_ROWS, MOST_ROWS_OF_WIDE, MOST_ROWS_OF_FEW = 64, 32, 16
"""Queries of a block where a target has many registers, these of 64 bytes, and few registers.  The
first cache has the scores of few queries, and a mask of later keys leaves nearly all of these
out."""
SCORES_VECTORS, SCORES_VECTORS_OF_WIDE = 2, 4
"""Vectors of keys in a register tile of the first product, and these where they have 64 bytes."""
WIDE = 64
"""Bytes of vectors with which blocks and register tiles of others were measured."""
STEPS, STEPS_OF_FEW = 2, 8
"""Steps of a product that are written out where a target has many registers, and few."""


def first_columns(space: AttentionKnobs) -> NDArray[np.int32]:
    """A config with these numbers."""
    config = np.zeros(1 + len(space.knobs.knobs), dtype=np.int32)
    rows = space.extents[ROW]
    shared = rows * prod(n for a, n in space.extents.items() if a[0] == "g")
    few = shared <= FEW_ROWS
    config[0] = int(few)
    _put_products(space, config, few=few)
    numbers = {
        ("rows", "between"): 2, ("vectors", "between"): 4,
        ("rows", "functions"): 1, ("vectors", "functions"): 4, ("vectors", OUT): 4,
    }  # fmt: skip
    for (kind, axis), value in numbers.items():
        put(space, config, kind, axis, value)
    return config


def _put_products(space: AttentionKnobs, config: NDArray[np.int32], *, few: bool) -> None:
    registers, rows = space.target.vector_registers, space.extents[ROW]
    scarce = space.target.has_few_registers
    wide = min(ceil(space.extents[FEATURE] / space.lanes[VALUES]), 2 if scarce else 4)
    tile = min(rows, _power((registers - 1 - wide) // wide))
    put(space, config, "vectors", VALUES, wide)
    put(space, config, "rows", VALUES, tile)
    steps = STEPS_OF_FEW if scarce and not few else STEPS
    put(space, config, "unroll", VALUES, steps)
    across = SCORES_VECTORS_OF_WIDE if _is_wide(space) else SCORES_VECTORS
    across = max(SCORES_VECTORS, min(across, space.extents[KEY] // space.lanes[SCORES]))
    put(space, config, "vectors", SCORES, 1 if few else across)
    most = _power((registers - 1 - across) // across)
    put(space, config, "rows", SCORES, min(rows, 4) if few else most)
    put(space, config, "unroll", SCORES, 4 if few else steps)
    block = _block(space, tile)
    put(space, config, "tiles", OUT, max(1, block // tile))
    heads = prod(n for a, n in space.extents.items() if a[0] == "b")
    iterations = ceil(rows / block)
    tasks = min(iterations, ceil(space.target.threads / heads) if heads else 1)
    put(space, config, "blocks", OUT, ceil(iterations / tasks))
    key_bytes = space.extents[FEATURE] * BYTES[space.compute.stages[-1].values[0].dtype]
    near = space.target.l1_bytes // max(1, key_bytes)
    put(space, config, "chunk", VALUES, 0 if space.extents[KEY] <= 2 * near else near // 2)


def _block(space: AttentionKnobs, tile: int) -> int:
    """Queries of a block, a power of two times a tile."""
    row_bytes = space.extents[KEY] * 4
    rows = MOST_ROWS_OF_WIDE if _is_wide(space) else MOST_ROWS
    rows = MOST_ROWS_OF_FEW if space.target.has_few_registers else rows
    most = min(rows, space.target.l2_bytes // (SHARE_OF_L2 * row_bytes))
    return tile * _power(max(1, min(most, space.extents[ROW]) // tile))


def _is_wide(space: AttentionKnobs) -> bool:
    return space.target.vector_bytes >= WIDE


def _power(most: int) -> int:
    """The largest power of two up to a number, which is 1 at least."""
    return 1 << max(1, most).bit_length() - 1

"""What all schedules of blocks in a TPU's vector memory share: extents of blocks, and limits."""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.gpu.space import Limit, powers_of_two
from hlotune.schedules.targets.tpu import LANES, TpuTarget, tile_rows

COPIES = 2
"""Copies of each block in vector memory: the next one arrives while one is computed with."""
VMEM_SHARE = 0.5
"""The share of vector memory that blocks and sums may take; the compiler needs the rest."""
STEP_S = 0.35e-6
"""What a step of the grid costs besides its work, roughly."""


def extents(extent: int, tile: int, most: int) -> tuple[int, ...]:
    """Powers of two of tiles that are shorter than the extent, then the whole extent."""
    parts = [b for b in powers_of_two(tile, most) if b < extent]
    return (*parts, extent) if extent <= most else tuple(parts)


def whole_tiles(
    what: str,
    rows: tuple[NDArray[np.int64], int],
    columns: tuple[NDArray[np.int64], int],
    element_bytes: int,
) -> Limit:
    """Blocks of whole tiles of the memory, or as long as the array; each with the array's extent.

    This is Mosaic's rule of (8, 128) for elements of 4 bytes.
    """
    tile = tile_rows(element_bytes)
    down = (rows[0] % tile == 0) | (rows[0] == rows[1])
    right = (columns[0] % LANES == 0) | (columns[0] == columns[1])
    message = f"a block of {what} of whole tiles of ({tile}, {LANES}), or as long as the array"
    return Limit(message, down & right)


def fits(held_bytes: NDArray[np.int64], target: TpuTarget) -> Limit:
    most = int(VMEM_SHARE * target.vmem_bytes)
    return Limit(f"at most {most} bytes of vector memory for blocks", held_bytes <= most)

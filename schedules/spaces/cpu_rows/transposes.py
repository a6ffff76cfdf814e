"""Register tiles of a transpose that the first candidate takes together.

Tiles read lines of as many rows of memory as they have, and of each line a half or less: the rest
is for the next tiles along the lanes.  Where results lie together along the rows, tiles behind one
another along these fill whole pieces of a few results, in the order in which pages of memory, and
lines of these, lie.  The next tiles along the lanes come when all that is done, and half of the
second cache should have the lines still.
"""

from math import ceil, prod

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.spaces.cpu_rows.bodies import stores_along_rows
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.targets.cpu import CpuTarget

SQUARES = 4
"""Register tiles of a transpose along each of its two axes that are taken together."""
BLOCKS = 8
"""A thread has at least so many blocks where they are long: fewer are not even shares."""
MOST_ALONG = 32
"""The same along the rows of tiles at most, where results lie together along these."""


def tiles_together(
    compute: Compute, stage: Stage, form: Form, rows: int, target: CpuTarget
) -> dict[str, int]:
    """By axis, of register tiles that have so many rows."""
    along = SQUARES
    if stores_along_rows(stage, form):
        held = target.l2_bytes // 2 // _conflict_bytes(compute, stage, form.row)
        tiles = ceil(stage.extents[form.row] / rows)
        wanted = ceil(tiles / ceil(tiles / min(MOST_ALONG, max(SQUARES, held // rows))))
        if _blocks(stage, form, rows, wanted) >= BLOCKS * target.threads:
            along = wanted
    return {form.row: along, form.vector: SQUARES}


def _blocks(stage: Stage, form: Form, rows: int, along: int) -> int:
    """How many blocks there are with so many tiles along rows, tiles being as wide as high."""
    others = prod(n for axis, n in stage.extents.items() if axis not in (form.row, form.vector))
    across = ceil(stage.extents[form.vector] / (rows * SQUARES))
    return int(others * across * ceil(stage.extents[form.row] / (rows * along)))


def _conflict_bytes(compute: Compute, stage: Stage, axis: str) -> int:
    """The largest power of two that divides how far apart neighbours along an axis are read.

    A cache has places for lines so far apart only in every so many bytes of it.
    """
    found = 1
    for x in stage.walked_loads:
        tensor = compute.tensor(x.tensor)
        apart = abs(stride(x.index, tensor.strides, axis)) * BYTES[tensor.dtype]
        found = max(found, apart & -apart)
    return found

"""Register tiles of a transpose that the first candidate takes together.

Tiles read lines of as many rows of memory as they have, and of each line a half or less: the rest
is for the next tiles along the lanes.  Where results lie together along the rows, tiles behind one
another along these fill whole pieces of a few results, in the order in which pages of memory, and
lines of these, lie.  The next tiles along the lanes come when all that is done, and half of the
second cache should have the lines still.
"""

from collections.abc import Sequence
from math import ceil, prod

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.spaces.cpu_rows.bodies import stores_along_rows
from hlotune.schedules.spaces.cpu_rows.forms import Form, is_transposed
from hlotune.schedules.spaces.cpu_rows.streams import is_near
from hlotune.schedules.targets.cpu import CpuTarget

SQUARES = 4
"""Register tiles of a transpose along each of its two axes that are taken together."""
BLOCKS = 8
"""A thread has at least so many blocks where they are long: fewer are not even shares."""
MOST_ALONG = 32
"""The same along the rows of tiles at most, where results lie together along these."""
FAR_ROWS = 2048
"""Bytes between the rows of a tile from which on processors do not fetch ahead along them: rows 128
bytes apart lose by requests, rows 2, 4 and 12 KiB apart gain."""


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


def asks_for_next_tile(compute: Compute, stage: Stage, form: Form, target: CpuTarget) -> bool:
    """Whether each vector of a transpose asks for the line behind it, which the next tile along the
    lanes reads, into the second cache.

    Rows of a tile lie on pages of their own then, so that processors see no streams, and wait for
    each line; where their distance is a power of two, the first cache has room for few of them.
    With wide vectors alone, each of which is a line.
    """
    if not (is_transposed(compute, stage, form) and stores_along_rows(stage, form)):
        return False
    apart = _turned_bytes_apart(compute, stage, form)
    is_far = min(apart, default=0) >= FAR_ROWS
    return target.has_wide_vectors and is_far and not is_near(compute, stage, target)


def rows_turned(compute: Compute, stage: Stage, form: Form, lanes: int, target: CpuTarget) -> int:
    """Rows of a register tile, of which all are turned at once: as many as registers hold.

    With vectors of 64 bytes and elements shorter than four half as many, which leaves registers for
    turning them; but as many as lanes, which store whole lines, where lines of so many results meet
    in a few places of the first cache: parts of a line would not find it there again.
    """
    if not target.has_wide_vectors:
        return min(lanes, target.vector_registers)
    tensors = ((x, compute.tensor(x.tensor)) for x in stage.stores)
    apart = [abs(stride(x.index, t.strides, form.vector)) * BYTES[t.dtype] for x, t in tensors]
    meet = lanes * _power_of_two(apart) > target.l1_bytes
    return lanes if meet else min(lanes, target.vector_registers // 2)


def _blocks(stage: Stage, form: Form, rows: int, along: int) -> int:
    """How many blocks there are with so many tiles along rows, tiles being as wide as high."""
    others = prod(n for axis, n in stage.extents.items() if axis not in (form.row, form.vector))
    across = ceil(stage.extents[form.vector] / (rows * SQUARES))
    return int(others * across * ceil(stage.extents[form.row] / (rows * along)))


def _conflict_bytes(compute: Compute, stage: Stage, axis: str) -> int:
    """The largest power of two that divides how far apart neighbours along an axis are read.

    A cache has places for lines so far apart only in every so many bytes of it.
    """
    return _power_of_two(_bytes_apart(compute, stage, axis))


def _power_of_two(distances: Sequence[int]) -> int:
    """The largest that divides one of some distances."""
    return max((n & -n for n in distances if n), default=1)


def _turned_bytes_apart(compute: Compute, stage: Stage, form: Form) -> list[int]:
    """How far apart rows are read, by loads that lie apart along these and together along lanes."""
    tensors = ((x, compute.tensor(x.tensor)) for x in stage.walked_loads)
    steps = (
        [abs(stride(x.index, t.strides, a)) for a in (form.row, form.vector)] + [BYTES[t.dtype]]
        for x, t in tensors
    )
    return [apart * size for apart, along, size in steps if apart > 1 and along == 1]


def _bytes_apart(compute: Compute, stage: Stage, axis: str) -> list[int]:
    """How far apart neighbours along an axis are read, by each load."""
    tensors = ((x, compute.tensor(x.tensor)) for x in stage.walked_loads)
    return [abs(stride(x.index, t.strides, axis)) * BYTES[t.dtype] for x, t in tensors]

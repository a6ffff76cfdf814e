"""Products of AMX tiles: whether a stage's sum is one, and how many tiles a nest writes out."""

from dataclasses import dataclass
from math import ceil, prod

from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import LoopNest, StageNest, region
from hlotune.schedules.targets.units import AMX_ROWS

FINITE = {"i8x4"}
"""Types of groups that cannot hold an infinity."""


@dataclass(frozen=True, slots=True)
class Product:
    """The operands of a product of tiles."""

    left: Load
    right: Load
    """Varies along the vectors."""


def product_of(stage: Stage, rows: str, groups: str, vector: str) -> Product | None:
    """The product of a stage's sum where tiles may lie along these axes.

    One operand varies along the vector and not along the rows, the other the other way round; both
    go through the groups one by one.
    """
    value = stage.values[0]
    if not isinstance(value, Apply) or value.op != "dot" or stage.combine is not SUM:
        return None
    loads = [x for x in value.args if isinstance(x, Load)]
    if len(loads) != 2 or loads[0].dtype != loads[1].dtype:
        return None
    left, right = loads if vector in loads[1].axes else loads[::-1]
    # Where something beside an operand says what is real, tiles would multiply packed zeros by it:
    # undefined where that is infinite.  Bytes are finite.
    if left.dtype not in FINITE and any(x.beside for x in loads):
        return None
    crossed = vector in left.axes or rows in right.axes or rows == vector
    plain = _is_plain(left, groups) and _is_plain(right, groups) and _is_plain(right, vector)
    return None if crossed or not plain or rows not in left.axes else Product(left, right)


def _is_plain(x: Load, axis: str) -> bool:
    """Whether a load goes along an axis in one dimension, group by group."""
    found = [(d, e) for d, e in enumerate(x.index) if axis in e.coefficients]
    if len(found) != 1:
        return False
    ((d, e),) = found
    gathered = x.along == d and e.terms == Affine.axis(axis, e.coefficients[axis]).terms
    return x.divisor(d) == 1 and (e.coefficients[axis] == 1 or gathered)


def tile_counts(nest: LoopNest, s: StageNest) -> tuple[int, int]:
    """Tiles of rows and of lanes in what a tensorized stage has written out."""
    assert s.tiles is not None
    sizes = s.sizes_inside(s.written_out - 1, region(nest, s))
    others = (sizes[a.name] for a in s.stage.parallel if a.name not in (s.tiles[0], s.vector_root))
    columns = ceil(sizes[s.vector_root or ""] / s.lanes)
    return ceil(sizes[s.tiles[0]] / AMX_ROWS) * prod(others), columns


def tile_registers(rows: int, columns: int) -> int:
    """The registers of the sums and of both operands."""
    return rows * columns + rows + columns

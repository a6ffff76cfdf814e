"""Sums of products by a processor's matrix unit: tiles of rows, of groups, and of lanes.

    sum over g of dot(a[m, g], b[g, n])   for 16 rows m, 16 groups g and 16 lanes n at once

The groups are those of `dots.py`, so that the compute is the one that `dots` makes; but the unit
takes bytes of both operands with their signs, and nothing has to be taken off again.  A tile of the
left operand has a row for each m, in which groups lie together; one of the right has a row for each
group.  The sums of up to eight tiles, less those of operands, stay in the unit's own registers.
"""

from dataclasses import dataclass, replace
from math import ceil, prod

from hlotune.schedules.compute import Compute, Stage
from hlotune.schedules.dots import Grouping, grouping, in_groups
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.expr import Affine, Apply, Load
from hlotune.schedules.nest import LoopNest, StageNest, region
from hlotune.schedules.roles import Contraction, contraction
from hlotune.schedules.target import Target

MATRIX = "matrix"
ROWS = GROUPS = LANES = 16
"""Most of a tile."""
REGISTERS = 8
"""Of a tile each."""
FEATURES = {"bf16x2": "amx-bf16", "i8x4": "amx-int8"}
"""What a target must have, by the type of the groups."""
FINITE = {"i8x4"}
"""Types of groups that no infinity is of."""


@dataclass(frozen=True, slots=True)
class Product:
    """The operands of a product of tiles."""

    left: Load
    right: Load
    """Varies along the vectors."""


def matrix(compute: Compute) -> Compute:
    """The algorithm.  Raises ScheduleError for a compute without such a sum."""
    found = grouping(compute, signed=True)
    if found is None:
        raise ScheduleError(
            f"matrix: expected a sum of products of bf16 in f32 or of i8 in i32, over an axis that "
            f"both operands have plain, got\n{compute}\nuse `direct`"
        )
    return in_groups(compute, found)


def matrix_contraction(compute: Compute, group: Grouping) -> Contraction:
    return replace(contraction(in_groups(compute, group)), inner=group.axis.name)


def has_unit(target: Target, group: str) -> bool:
    """Whether a target multiplies tiles of such groups."""
    return FEATURES.get(group) in target.features and target.vector_bytes == 4 * LANES


def product_of(stage: Stage, rows: str, groups: str, vector: str) -> Product | None:
    """The product of a stage's sum where tiles may lie along these axes.

    One operand varies along the vector and not along the rows, the other the other way round; both
    go through the groups one by one.
    """
    value = stage.values[0]
    if not isinstance(value, Apply) or value.op != "dot" or stage.combine != "sum":
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
    return ceil(sizes[s.tiles[0]] / ROWS) * prod(others), columns


def tile_registers(rows: int, columns: int) -> int:
    """Of the sums, and of both operands."""
    return rows * columns + rows + columns

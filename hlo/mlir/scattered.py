"""Scatters of one element a row as comparisons, which fuse with what computes the rows.

The gradient of `take_along_axis`, as in the cross entropy of integer labels, puts one number into
each row, at a place that data decides.  Where all of the result is written anyway, each element can
as well ask whether it is the one.
"""

from collections.abc import Sequence
from typing import Any

from hlotune.hlo.mlir.versions import ir, stablehlo

ADDED = "stablehlo.add"
SIGNED = frozenset({"i8", "i16", "i32", "i64"})


def compared(operation: Any) -> list[Any] | None:
    """The result of a scatter that sets or adds one element in each row; None for all others.

    Indices outside of a row change nothing, in both forms.
    """
    if len(operation.operands) != 3 or len(operation.results) != 1:
        return None
    operand, indices, updates = operation.operands
    adds = _adds(operation)
    place = _dimension(operation, [ir.RankedTensorType(v.type) for v in operation.operands])
    if adds is None or place is None:
        return None
    kind = ir.RankedTensorType(operand.type)
    rows = [d for d in range(kind.rank) if d != place]
    shape = [kind.shape[d] for d in rows]
    index_type = ir.RankedTensorType(indices.type).element_type
    numbered = ir.RankedTensorType.get(kind.shape, index_type)
    at = stablehlo.broadcast_in_dim(numbered, _reshaped(indices, shape), rows)
    update = stablehlo.broadcast_in_dim(kind, _reshaped(updates, shape), rows)
    here = stablehlo.compare(
        stablehlo.iota(numbered, place), at, stablehlo.ComparisonDirectionAttr.get("EQ")
    )
    changed = stablehlo.add(operand, update) if adds else update
    return [stablehlo.select(here, changed, operand)]


def _reshaped(value: Any, shape: Sequence[int]) -> Any:
    kind = ir.RankedTensorType(value.type)
    return stablehlo.reshape(ir.RankedTensorType.get(shape, kind.element_type), value)


def _adds(operation: Any) -> bool | None:
    """Whether updates are added, or set; None where they are merged otherwise."""
    block = operation.regions[0].blocks[0]
    *inside, returned = (o.operation for o in block.operations)
    old, new = block.arguments
    if not inside:
        return False if returned.operands[0] == new else None
    sums = len(inside) == 1 and inside[0].name == ADDED
    both = sums and {*map(str, inside[0].operands)} == {str(old), str(new)}
    return True if both else None


def _dimension(operation: Any, kinds: Sequence[Any]) -> int | None:
    """The dimension along which each row gets one element, all others being rows in order."""
    operand, indices, updates = kinds
    if not all(k.has_static_shape for k in kinds) or str(indices.element_type) not in SIGNED:
        return None
    n = stablehlo.ScatterDimensionNumbers(operation.attributes["scatter_dimension_numbers"])
    rows = [*n.input_batching_dims]
    alone = [d for d in range(operand.rank) if d not in rows]
    behind = n.index_vector_dim == indices.rank - 1 and indices.shape[-1] == 1
    batches = [*n.scatter_indices_batching_dims]
    in_order = rows == sorted(rows) and batches == sorted(batches)
    one = len(alone) == 1 and alone == [*n.inserted_window_dims] == [
        *n.scattered_dims_to_operand_dims
    ]
    single = [k for d, k in enumerate(updates.shape) if d not in batches]
    fits = not n.update_window_dims and behind and in_order and one and rows
    return alone[0] if fits and all(k == 1 for k in single) else None

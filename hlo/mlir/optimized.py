"""Operations that XLA puts into a program as it optimizes it, written as StableHLO again.

A module that was dumped behind XLA's optimizations has fusions, copies between layouts, and casts
that read the same bytes in another layout.  StableHLO knows no layouts: a fusion becomes the
operations in it, a copy is its operand, and a cast becomes transposes around a reshape.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlotune.hlo.mlir.versions import ir, stablehlo


def operations_of_fusion(fusion: Any) -> list[Any]:
    """The results of a fusion, whose operations move in front of it."""
    block = fusion.regions[0].blocks[0]
    for argument, operand in zip(block.arguments, fusion.operands, strict=True):
        argument.replace_all_uses_with(operand)
    *inside, returned = (o.operation for o in block.operations)
    for operation in inside:
        operation.move_before(fusion)
    return list(returned.operands)


def first_operand(operation: Any) -> list[Any]:
    """The value that a copy, or a dependency between operations, passes on."""
    return [operation.operands[0]]


def cast_bytes(bitcast: Any) -> list[Any] | None:
    """The operand's bytes, in the order in which they lie in memory, as another shape or type.

    None where the element's width changes and the layout with it: no operation of StableHLO does
    that.
    """
    value, kind = bitcast.operands[0], ir.RankedTensorType(bitcast.results[0].type)
    source, target = (_layout(bitcast, name) for name in ("source_layout", "result_layout"))
    if ir.RankedTensorType(value.type).element_type != kind.element_type:
        if list(ir.RankedTensorType(value.type).shape) != list(kind.shape) or source != target:
            return None
        return [stablehlo.bitcast_convert(kind, value)]
    in_memory = [kind.shape[axis] for axis in target]
    flat = _transposed(value, source)
    reshaped = stablehlo.reshape(ir.RankedTensorType.get(in_memory, kind.element_type), flat)
    return [_transposed(reshaped, np.argsort(target).tolist())]


def _layout(bitcast: Any, name: str) -> list[int]:
    """Axes from the one whose elements lie farthest apart to the contiguous one."""
    attribute = ir.DenseIntElementsAttr(bitcast.attributes[name])
    return [int(axis) for axis in reversed(np.array(attribute).reshape(-1))]


def _transposed(value: Any, order: Sequence[int]) -> Any:
    if list(order) == sorted(order):
        return value
    return stablehlo.transpose(value, list(order))

"""Constants along one axis, and scalars, in the form that JAX writes them.

`x + b` with a number for each channel is, as JAX writes it, a constant of one axis, broadcast
twice: among axes of one element, then to the shape of x.  Other sources have constants whose
other axes have one element.  In one form the kernels are the same, and share their records.
"""

from math import prod
from typing import Any

from hlotune.hlo.mlir.stored_values import dense
from hlotune.hlo.mlir.values import literal
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in

_BROADCAST = "stablehlo.broadcast_in_dim"


def write_as_jax_does(function: Any) -> None:
    """Rewrites the constants that broadcasts of a function read, in place."""
    for broadcast in operations_in(function, _BROADCAST.__eq__):
        constant = broadcast.operands[0].owner
        if not isinstance(constant, ir.Block) and constant.operation.name == "stablehlo.constant":
            with ir.InsertionPoint(broadcast), broadcast.location:
                _rewrite(broadcast, constant.operation)


def _rewrite(broadcast: Any, constant: Any) -> None:
    kind = ir.RankedTensorType(constant.results[0].type)
    long = [axis for axis, size in enumerate(kind.shape) if size != 1]
    if kind.rank == 0 or len(long) > 1 or (kind.rank == 1 and long):
        return
    value = constant.attributes["value"]
    flat = ir.RankedTensorType.get([prod(kind.shape)] if long else [], kind.element_type)
    if ir.DenseElementsAttr(value).is_splat:
        element = ir.DenseElementsAttr(value).get_splat_value()
        held = stablehlo.constant(ir.DenseElementsAttr.get_splat(flat, element))
    else:
        array = literal(value).array().reshape(flat.shape)
        held = stablehlo.constant(dense(array, kind.element_type))
    if not long:
        broadcast.operands[0] = held
        broadcast.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get([])
        return
    target = ir.DenseI64ArrayAttr(broadcast.attributes["broadcast_dimensions"])[long[0]]
    axes = range(ir.RankedTensorType(broadcast.results[0].type).rank)
    shape = [kind.shape[long[0]] if axis == target else 1 for axis in axes]
    spread = ir.RankedTensorType.get(shape, kind.element_type)
    broadcast.operands[0] = stablehlo.broadcast_in_dim(spread, held, [target])
    broadcast.attributes["broadcast_dimensions"] = ir.DenseI64ArrayAttr.get(list(axes))

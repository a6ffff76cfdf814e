"""Operations that stand for several others, written out before anything else looks at a program.

`stablehlo.map` becomes elementwise operations on whole tensors, `stablehlo.einsum` a dot_general, a
scatter of one element a row a comparison,
`stablehlo.batch_norm_inference` arithmetic that fuses; a sharding constraint is left out, as a
program for one device has nothing to shard.  Slices of a whole tensor, and empty parts of
concatenations, as `jnp.roll` makes them of a shift by nothing, are left out.  A product that is
transposed is written in the order of its transpose.  What XLA's
optimizations leave in a dumped program is written as StableHLO again.  What none of these rules
fits is left as it is: XLA knows it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hlotune.hlo.mlir.optimized import cast_bytes, first_operand, operations_of_fusion
from hlotune.hlo.mlir.scattered import compared
from hlotune.hlo.mlir.shardings import ANNOTATING_CALL, ANNOTATIONS, target_of
from hlotune.hlo.mlir.turned_products import turned_product
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.hlo.operations import ON_SCALARS

_EINSUM = re.compile(r"([a-zA-Z]*),([a-zA-Z]*)->([a-zA-Z]*)")


def expand(function: Any) -> None:
    """Writes out operations of a function, in place.  Calls in it are inlined."""
    for name, rule in RULES.items():
        for operation in operations_in(function, name.__eq__):
            with ir.InsertionPoint(operation), operation.location:
                values = rule(operation)
            if values is not None:
                replace([operation], list(operation.results), values)


def _without_sharding(operation: Any) -> list[Any]:
    return list(operation.operands)


def _without_annotation(call: Any) -> list[Any] | None:
    """The operand of a call that only says how a tensor is sharded."""
    return list(call.operands) if target_of(call) == ANNOTATING_CALL else None


def _mapped(operation: Any) -> list[Any] | None:
    """The body of a map on whole tensors; None where it does more than elementwise operations."""
    *inside, returned = (o.operation for o in operation.regions[0].blocks[0].operations)
    if any(o.name not in ON_SCALARS for o in inside):
        return None
    shape = ir.RankedTensorType(operation.results[0].type).shape
    arguments = operation.regions[0].blocks[0].arguments
    known = dict(zip(arguments, operation.operands, strict=True))
    for scalar in inside:
        operands = [_whole(v, known, shape) for v in scalar.operands]
        known |= zip(scalar.results, _on_tensors(scalar, operands, shape), strict=True)
    return [_whole(v, known, shape) for v in returned.operands]


def _on_tensors(scalar: Any, operands: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """An elementwise operation of scalars as one of tensors."""
    types = [_tensor_of(r.type, shape) for r in scalar.results]
    attributes = {name: scalar.attributes[name] for name in scalar.attributes}
    if scalar.name == "stablehlo.constant":
        element = ir.DenseElementsAttr(attributes["value"]).get_splat_value()
        attributes["value"] = ir.DenseElementsAttr.get_splat(types[0], element)
    return list(ir.Operation.create(scalar.name, types, list(operands), attributes).results)


def _whole(value: Any, known: Mapping[Any, Any], shape: Sequence[int]) -> Any:
    """A scalar of the body as a tensor; one from outside of the map is broadcast."""
    if value in known:
        return known[value]
    return stablehlo.broadcast_in_dim(_tensor_of(value.type, shape), value, [])


def _tensor_of(scalar: Any, shape: Sequence[int]) -> Any:
    return ir.RankedTensorType.get(shape, ir.RankedTensorType(scalar).element_type)


def _contracted(operation: Any) -> list[Any] | None:
    """An einsum of two operands as dot_general; None where it has a label twice in one operand,
    or one that is summed over in one operand alone."""
    config = _EINSUM.fullmatch(ir.StringAttr(operation.attributes["einsum_config"]).value)
    if config is None:
        return None
    lhs, rhs, result = config.groups()
    both = [x for x in lhs if x in rhs]
    alone = [x for x in lhs + rhs if x not in both]
    repeated = any(len(set(labels)) < len(labels) for labels in (lhs, rhs, result))
    if repeated or any(x not in result for x in alone) or not set(result) <= set(lhs + rhs):
        return None
    batch, summed = ([x for x in both if (x in result) == kept] for kept in (True, False))
    order = [*batch, *(x for x in lhs + rhs if x in alone)]
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=[lhs.index(x) for x in batch],
        rhs_batching_dimensions=[rhs.index(x) for x in batch],
        lhs_contracting_dimensions=[lhs.index(x) for x in summed],
        rhs_contracting_dimensions=[rhs.index(x) for x in summed],
    )
    return [_transposed(_dot(operation, numbers, order, result), order, result)]


def _dot(operation: Any, numbers: Any, order: Sequence[str], result: str) -> Any:
    """The product, whose dimensions are those of `order`."""
    kind = ir.RankedTensorType(operation.results[0].type)
    shape = [kind.shape[result.index(x)] for x in order]
    attributes = {"dot_dimension_numbers": numbers}
    if "precision_config" in operation.attributes:
        attributes["precision_config"] = operation.attributes["precision_config"]
    types = [ir.RankedTensorType.get(shape, kind.element_type)]
    operands = list(operation.operands)
    return ir.Operation.create("stablehlo.dot_general", types, operands, attributes).results[0]


def _transposed(value: Any, order: Sequence[str], result: str) -> Any:
    if list(result) == list(order):
        return value
    return stablehlo.transpose(value, [order.index(x) for x in result])


def _normalised(norm: Any) -> list[Any] | None:
    """The result of `batch_norm_inference` in the order of its definition: deviation and scale in
    one factor a channel may be more than f16 holds.  None where a shape is not static.
    """
    if not all(ir.RankedTensorType(v.type).has_static_shape for v in norm.operands):
        return None
    x, scale, offset, mean, variance = norm.operands
    channel = [ir.IntegerAttr(norm.attributes["feature_index"]).value]
    element = ir.RankedTensorType(x.type).element_type
    epsilon = ir.FloatAttr.get(element, ir.FloatAttr(norm.attributes["epsilon"]).value)
    least = stablehlo.constant(ir.DenseElementsAttr.get_splat(variance.type, epsilon))
    factor = stablehlo.rsqrt(stablehlo.add(variance, least))
    mean, factor, scale, offset = (
        stablehlo.broadcast_in_dim(x.type, v, channel) for v in (mean, factor, scale, offset)
    )
    normal = stablehlo.multiply(stablehlo.subtract(x, mean), factor)
    return [stablehlo.add(stablehlo.multiply(normal, scale), offset)]


def _whole_slice(operation: Any) -> list[Any] | None:
    """The operand of a slice that has all of it."""
    kind = ir.RankedTensorType(operation.operands[0].type)
    whole = kind.has_static_shape and kind == operation.results[0].type
    return [operation.operands[0]] if whole else None


def _without_empty(operation: Any) -> list[Any] | None:
    """A concatenation without its empty parts; None where it has none."""
    parts = list(operation.operands)
    kinds = [ir.RankedTensorType(v.type) for v in parts]
    kept = [v for v, k in zip(parts, kinds, strict=True) if not _is_empty(k)]
    if not kept or len(kept) == len(parts):
        return None
    if len(kept) == 1:
        return kept
    dimension = ir.IntegerAttr(operation.attributes["dimension"]).value
    return [stablehlo.concatenate(kept, dimension)]


def _is_empty(kind: Any) -> bool:
    return kind.has_static_shape and 0 in kind.shape


RULES = {
    "mhlo.fusion": operations_of_fusion,
    "mhlo.copy": first_operand,
    "mhlo.add_dependency": first_operand,
    "mhlo.bitcast": cast_bytes,
    **dict.fromkeys(ANNOTATIONS, _without_sharding),
    "stablehlo.custom_call": _without_annotation,
    "stablehlo.map": _mapped,
    "stablehlo.einsum": _contracted,
    "stablehlo.batch_norm_inference": _normalised,
    "stablehlo.scatter": compared,
    "stablehlo.slice": _whole_slice,
    "stablehlo.concatenate": _without_empty,
    "stablehlo.transpose": turned_product,
}

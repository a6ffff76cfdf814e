"""Images with channels last inside of programs whose convolutions have channels first.

ONNX and PyTorch know images as batch, channels, height, width.  Kernels read and write channels
that lie next to each other with whole vectors, so each convolution of constant weights gives its
result with channels last, and the operations behind it are written for that order too.  Nothing is
transposed but what an operation without a rule reads; where that would be too much, the program is
left as it is.

`Order`: axis i of the image as the program had it is axis `order[i]` of what takes its place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlotune.hlo.mlir.constant_forms import write_as_jax_does
from hlotune.hlo.mlir.module import Module, parse
from hlotune.hlo.mlir.stored_values import dense
from hlotune.hlo.mlir.values import literal, tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.operations import ON_SCALARS

Order = tuple[int, ...]
ELEMENTWISE = ON_SCALARS - {"stablehlo.constant", "stablehlo.bitcast_convert"}
"""Bits in a type of another width have an axis more, or less."""
CONTROL_FLOW = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
LEAST_RANK = 4
"""Images have at least two spatial axes."""
MOST_MOVED = 0.25
"""Bytes that are transposed, as a part of those that the convolutions read and write."""


def with_channels_last(module: Module) -> Module:
    """The module in normal form, or the same program with images that have channels last inside."""
    before = module.bytecode()
    turning = _Turning()
    with module.op.context, ir.Location.unknown():
        turning.block(module.function("main").regions[0].blocks[0])
        erased = all(_erased(operation) for operation in reversed(turning.replaced))
    too_much = turning.moved_bytes > MOST_MOVED * turning.image_bytes
    if too_much or not (erased and turning.image_bytes):
        return parse(before)
    with module.op.context, ir.Location.unknown():
        write_as_jax_does(module.function("main"))
    module.run("canonicalize", "cse")
    return module


@dataclass
class _Turning:
    """Goes through blocks in order, and keeps what stands in the place of images."""

    turned: dict[Any, tuple[Any, Order]] = field(default_factory=dict)
    """Values of the program that nothing computes any more: each with one of the same elements in
    another order."""
    replaced: list[Any] = field(default_factory=list)
    """Operations that nothing reads any more."""
    image_bytes: int = 0
    moved_bytes: int = 0

    def block(self, block: Any) -> None:
        whole: dict[Any, Any] = {}
        """Values in the order of the program again, for this block."""
        for operation in [o.operation for o in block.operations]:
            with ir.InsertionPoint(operation), operation.location:
                rule = RULES.get(operation.name)
                reads_turned = any(v in self.turned for v in operation.operands)
                begins = rule in (_convolution, _transpose)
                if rule and (reads_turned or begins) and rule(self, operation):
                    self.replaced.append(operation)
                    continue
                for k, operand in enumerate(operation.operands):
                    if operand in self.turned:
                        if operand not in whole:
                            whole[operand] = self.restored(operand)
                        operation.operands[k] = whole[operand]
            if operation.name in CONTROL_FLOW:
                for region in operation.regions:
                    self.block(region.blocks[0])

    def restored(self, value: Any) -> Any:
        """A value in the order of the program."""
        source, order = self.turned[value]
        self.moved_bytes += _bytes(value)
        return stablehlo.transpose(source, list(order))

    def order_of(self, operands: Sequence[Any]) -> Order:
        return next(self.turned[v][1] for v in operands if v in self.turned)

    def in_order(self, value: Any, order: Order) -> Any:
        """A value with its axes in another order."""
        if value in self.turned and self.turned[value][1] == order:
            return self.turned[value][0]
        if value in self.turned:
            value = self.restored(value)
        if (known := _already(value, order)) is not None:
            return known
        self.moved_bytes += _bytes(value)
        return stablehlo.transpose(value, _inverse(order))

    def give(self, result: Any, made: Any, order: Order) -> None:
        """Puts a value of another order in the place of a result."""
        if list(order) == sorted(order):
            result.replace_all_uses_with(made)
        else:
            self.turned[result] = made, order


def _erased(operation: Any) -> bool:
    """Erases an operation that nothing reads; false where something in a region does."""
    if any(True for result in operation.results for _ in result.uses):
        return False
    operation.erase()
    return True


def _already(value: Any, order: Order) -> Any | None:
    """A value in another order where that takes no work: of constants, numbers along an axis,
    broadcasts and transposes."""
    if isinstance(value.owner, ir.Block):
        return None
    owner, kind, inverse = value.owner.operation, _permuted(value.type, order), _inverse(order)
    if owner.name == "stablehlo.constant":
        held = owner.attributes["value"]
        if ir.DenseElementsAttr(held).is_splat:
            element = ir.DenseElementsAttr(held).get_splat_value()
            return stablehlo.constant(ir.DenseElementsAttr.get_splat(kind, element))
        turned = literal(held).array().transpose(inverse)
        return stablehlo.constant(dense(turned, kind.element_type))
    if owner.name == "stablehlo.iota":
        axis = ir.IntegerAttr(owner.attributes["iota_dimension"])
        turned_axis = ir.IntegerAttr.get(axis.type, order[axis.value])
        return ir.Operation.create(owner.name, [kind], [], {"iota_dimension": turned_axis}).result
    if owner.name == "stablehlo.broadcast_in_dim":
        axes = [order[d] for d in owner.attributes["broadcast_dimensions"]]
        return stablehlo.broadcast_in_dim(kind, owner.operands[0], axes)
    if owner.name == "stablehlo.transpose":
        axes = [owner.attributes["permutation"][d] for d in inverse]
        same = axes == sorted(axes)
        return owner.operands[0] if same else stablehlo.transpose(owner.operands[0], axes)
    return None


def _convolution(turning: _Turning, operation: Any) -> bool:
    """Reads and gives channels last; weights that are constants get output features last."""
    image, weights = operation.operands
    rank = len(ir.RankedTensorType(image.type).shape)
    numbers = stablehlo.ConvDimensionNumbers(operation.attributes["dimension_numbers"])
    spatial = list(range(2, rank))
    first = [0, 1, *spatial]
    has_first = _axes(numbers, "output", "batch", "feature") == first
    known = _already(image, (0, rank - 1, *range(1, rank - 1))) if has_first else None
    if rank < LEAST_RANK or not (has_first or image in turning.turned):
        return False
    read = _axes(numbers, "input", "batch", "feature")
    filters = _axes(numbers, "kernel", "output_feature", "input_feature")
    written = _axes(numbers, "output", "batch", "feature")
    order: Order = tuple(range(rank))
    if image in turning.turned:
        image, way = turning.turned[image]
        read = [way[d] for d in read]
    elif known is not None and read == first:
        image, read = known, [0, rank - 1, *range(1, rank - 1)]
    if has_first:
        order = (0, rank - 1, *range(1, rank - 1))
        written = list(order)
        turning.image_bytes += sum(_bytes(v) for v in (image, operation.results[0]))
        if filters == first and _is_constant(weights):
            way = (rank - 1, rank - 2, *range(rank - 2))
            weights, filters = _already(weights, way), list(way)
    made = _again(operation, [image, weights], [_permuted(operation.results[0].type, order)])
    made.attributes["dimension_numbers"] = _numbers(read, filters, written)
    turning.give(operation.results[0], made.results[0], order)
    return True


def _axes(numbers: Any, side: str, one: str, other: str) -> list[int]:
    """Batch, feature and spatial axes of an image; output, input and spatial ones of weights."""
    names = (f"{side}_{one}_dimension", f"{side}_{other}_dimension")
    return [*(getattr(numbers, n) for n in names), *getattr(numbers, f"{side}_spatial_dimensions")]


def _numbers(read: Sequence[int], filters: Sequence[int], written: Sequence[int]) -> Any:
    return stablehlo.ConvDimensionNumbers.get(
        input_batch_dimension=read[0],
        input_feature_dimension=read[1],
        input_spatial_dimensions=list(read[2:]),
        kernel_output_feature_dimension=filters[0],
        kernel_input_feature_dimension=filters[1],
        kernel_spatial_dimensions=list(filters[2:]),
        output_batch_dimension=written[0],
        output_feature_dimension=written[1],
        output_spatial_dimensions=list(written[2:]),
    )


def _elementwise(turning: _Turning, operation: Any) -> bool:
    order = turning.order_of(operation.operands)
    operands = [turning.in_order(v, order) if _rank(v) else v for v in operation.operands]
    made = _again(operation, operands, [_permuted(r.type, order) for r in operation.results])
    for result, new in zip(operation.results, made.results, strict=True):
        turning.give(result, new, order)
    return True


def _along_axes(
    names: Sequence[str], arrays: Callable[[int], int] = lambda count: count
) -> Callable[[_Turning, Any], bool]:
    """A rule for operations with a number for each axis, in attributes of these names.

    Args:
        arrays: how many operands, the first ones, are arrays, of all; others are scalars.
    """

    def rule(turning: _Turning, operation: Any) -> bool:
        count = arrays(len(operation.operands))
        order, inverse = (f := turning.order_of(operation.operands)), _inverse(f)
        operands = [
            turning.in_order(v, order) if k < count else v for k, v in enumerate(operation.operands)
        ]
        made = _again(operation, operands, [_permuted(r.type, order) for r in operation.results])
        for name in names:
            if name in operation.attributes:
                numbers = list(operation.attributes[name])
                turned = ir.DenseI64ArrayAttr.get([numbers[d] for d in inverse])
                made.attributes[name] = turned
        if "padding" in operation.attributes:
            pads: Any = np.array(ir.DenseIntElementsAttr(operation.attributes["padding"]))
            made.attributes["padding"] = ir.DenseElementsAttr.get(pads[inverse].copy())
        for result, new in zip(operation.results, made.results, strict=True):
            turning.give(result, new, order)
        return True

    return rule


def _concatenate(turning: _Turning, operation: Any) -> bool:
    order = turning.order_of(operation.operands)
    operands = [turning.in_order(v, order) for v in operation.operands]
    made = _again(operation, operands, [_permuted(operation.results[0].type, order)])
    axis = ir.IntegerAttr(operation.attributes["dimension"])
    made.attributes["dimension"] = ir.IntegerAttr.get(axis.type, order[axis.value])
    turning.give(operation.results[0], made.results[0], order)
    return True


def _reverse(turning: _Turning, operation: Any) -> bool:
    source, order = turning.turned[operation.operands[0]]
    made = _again(operation, [source], [_permuted(operation.results[0].type, order)])
    axes = sorted(order[d] for d in operation.attributes["dimensions"])
    made.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(axes)
    turning.give(operation.results[0], made.results[0], order)
    return True


def _reduce(turning: _Turning, operation: Any) -> bool:
    count = len(operation.operands) // 2
    order = turning.order_of(operation.operands)
    gone = list(operation.attributes["dimensions"])
    left = [d for d in range(len(order)) if d not in gone]
    there = sorted(order[d] for d in left)
    after = tuple(there.index(order[d]) for d in left)
    operands = [
        turning.in_order(v, order) if k < count else v for k, v in enumerate(operation.operands)
    ]
    made = _again(operation, operands, [_permuted(r.type, after) for r in operation.results])
    axes = ir.DenseI64ArrayAttr.get(sorted(order[d] for d in gone))
    made.attributes["dimensions"] = axes
    for result, new in zip(operation.results, made.results, strict=True):
        turning.give(result, new, after)
    return True


def _broadcast(turning: _Turning, operation: Any) -> bool:
    source, order = turning.turned[operation.operands[0]]
    axes = list(operation.attributes["broadcast_dimensions"])
    kind = operation.results[0].type
    made = stablehlo.broadcast_in_dim(kind, source, [axes[d] for d in _inverse(order)])
    operation.results[0].replace_all_uses_with(made)
    return True


def _reshape(turning: _Turning, operation: Any) -> bool:
    """Where only axes of one element have moved, the elements lie in the same order."""
    value = operation.operands[0]
    source, order = turning.turned[value]
    shape = ir.RankedTensorType(value.type).shape
    moved = [order[d] for d, extent in enumerate(shape) if extent != 1]
    if moved != sorted(moved):
        return False
    made = stablehlo.reshape(operation.results[0].type, source)
    operation.results[0].replace_all_uses_with(made)
    return True


def _transpose(turning: _Turning, operation: Any) -> bool:
    """Also of a program that itself brings channels to the front, as for a pool."""
    value, permutation = operation.operands[0], tuple(operation.attributes["permutation"])
    if value not in turning.turned:
        rank = len(permutation)
        to_front = rank >= LEAST_RANK and permutation == (0, rank - 1, *range(1, rank - 1))
        if to_front:
            turning.turned[operation.results[0]] = value, permutation
        return to_front
    source, order = turning.turned[value]
    axes = [order[d] for d in permutation]
    made = source if axes == sorted(axes) else stablehlo.transpose(source, axes)
    operation.results[0].replace_all_uses_with(made)
    return True


RULES: dict[str, Callable[[_Turning, Any], bool]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "stablehlo.convolution": _convolution,
    "stablehlo.reduce_window": _along_axes(
        ("window_dimensions", "window_strides", "base_dilations", "window_dilations"),
        lambda count: count // 2,
    ),
    "stablehlo.pad": _along_axes(
        ("edge_padding_low", "edge_padding_high", "interior_padding"), lambda count: 1
    ),
    "stablehlo.slice": _along_axes(("start_indices", "limit_indices", "strides")),
    "stablehlo.concatenate": _concatenate,
    "stablehlo.reverse": _reverse,
    "stablehlo.reduce": _reduce,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
}


def _again(operation: Any, operands: Sequence[Any], types: Sequence[Any]) -> Any:
    """The operation once more, with other operands and types."""
    made = operation.clone()
    for k, operand in enumerate(operands):
        made.operands[k] = operand
    for result, kind in zip(made.results, types, strict=True):
        result.set_type(kind)
    return made


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(d) for d in range(len(order))]


def _permuted(mlir_type: Any, order: Order) -> Any:
    kind = ir.RankedTensorType(mlir_type)
    return ir.RankedTensorType.get([kind.shape[d] for d in _inverse(order)], kind.element_type)


def _rank(value: Any) -> int:
    return int(ir.RankedTensorType(value.type).rank)


def _bytes(value: Any) -> int:
    return tensor_type(value.type).bytes


def _is_constant(value: Any) -> bool:
    return not isinstance(value.owner, ir.Block) and (
        value.owner.operation.name == "stablehlo.constant"
    )

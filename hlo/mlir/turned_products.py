"""Products that are transposed, written as products in the order of the transpose.

`jax.grad` gives a product of weights as the transpose of one of activations.  With its operands in
the other order the product has the weights' own order, so that what stands behind it, as an
optimizer's step, is elementwise to it.  XLA does the same.
"""

from collections.abc import Sequence
from typing import Any

from hlotune.hlo.mlir.versions import ir, stablehlo

_PRODUCT, _NUMBERS = "stablehlo.dot_general", "dot_dimension_numbers"
_PRECISION = "precision_config"


def turned_product(transpose: Any) -> list[Any] | None:
    """The product that a transpose reads, with its operands exchanged; None where others read it
    too, or the transpose does more than exchange what the two operands have of the result."""
    product = transpose.operands[0].owner
    product = None if isinstance(product, ir.Block) else product.operation
    if product is None or product.name != _PRODUCT or len(list(product.results[0].uses)) > 1:
        return None
    if set(product.attributes) - {_NUMBERS, _PRECISION}:
        return None
    numbers = stablehlo.DotDimensionNumbers(product.attributes[_NUMBERS])
    order = list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))
    lhs, rhs = (ir.RankedTensorType(v.type).rank for v in product.operands)
    batch, summed = (
        len(numbers.lhs_batching_dimensions), len(numbers.lhs_contracting_dimensions)
    )  # fmt: skip
    if order != _exchanged(batch, lhs - batch - summed, rhs - batch - summed):
        return None
    return [_with_operands_exchanged(product, numbers, transpose.results[0].type)]


def _exchanged(batch: int, lhs: int, rhs: int) -> Sequence[int]:
    """The order of a product's dimensions once those of its two operands have changed places."""
    left, right = range(batch, batch + lhs), range(batch + lhs, batch + lhs + rhs)
    return [*range(batch), *right, *left]


def _with_operands_exchanged(product: Any, numbers: Any, kind: Any) -> Any:
    attributes: dict[str, Any] = {
        _NUMBERS: stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=numbers.rhs_batching_dimensions,
            rhs_batching_dimensions=numbers.lhs_batching_dimensions,
            lhs_contracting_dimensions=numbers.rhs_contracting_dimensions,
            rhs_contracting_dimensions=numbers.lhs_contracting_dimensions,
        )
    }
    if _PRECISION in product.attributes:
        both = list(ir.ArrayAttr(product.attributes[_PRECISION]))
        attributes[_PRECISION] = ir.ArrayAttr.get(both[::-1])
    operands = list(product.operands)[::-1]
    return ir.Operation.create(_PRODUCT, [kind], operands, attributes).results[0]

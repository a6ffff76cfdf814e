"""How far XLA on a CPU lags behind what the machine could do, at a guess, by a kernel's text alone:
which kernels are opened first hangs on it.
"""

from collections.abc import Sequence
from math import prod
from typing import cast

from hlotune.hlo.graph import Graph, Op

CONVOLUTION, PRODUCT = "stablehlo.convolution", "stablehlo.dot_general"
POOL_GRADIENT = "stablehlo.select_and_scatter"
PLAIN_LAG = 2.0
"""XLA's plain convolutions take about so many times their roofline."""
MOST_LAG = 30.0
"""Those in groups of features take longer than plain ones of as much arithmetic, about in the
number of groups, and those of single channels 30 times as long at least; so do those of a window
that is larger than the image, 25 to 170 times."""
WIDE_LAG, WIDE = 6.0, 400
"""Those of a window of so many taps and of fewer places, as gradients of weights are: on a Zen 3
those of 28x28 and more took 9 to 14 times their roofline, those of 14x14 and 7x7 2.7 to 4.4 times,
and of one image, as features are the batch there, all took about 2.8 times."""
FEATURES_FIRST_LAG = 2.0
"""Those of images whose channels lie furthest apart."""
DEEP_LAG = 5.0
"""Those of three spatial dimensions."""
PRODUCT_LAG = 1.15
"""XLA's products of f32 are near the peak themselves, and those of single rows near the memory."""
FEW_ROWS_LAG, FEW_ROWS = 4.0, 48
"""Those of up to so many rows or columns, and more than one, put the other matrix into an order of
their own, which takes longer than the arithmetic."""
NARROW_LAG = 2.5
"""Products of other types: XLA widens them."""
SEVERAL_LAG = 4.0
"""Several products in one kernel, as of attention, between which XLA writes all of a large result.
"""
POOL_GRADIENT_LAG = 10.0
"""Gradients of maximum pooling took XLA 10 to 13 times what ours took on a Zen 3, five of five, and
ours are near what memory allows."""
OTHER_LAG = 1.5
"""Kernels without products: elementwise operations and reductions."""


def default_lag(graph: Graph) -> float:
    """How many times the roofline of a kernel XLA takes on a CPU, at a guess."""
    if convolutions := [op for op in graph.ops if op.name == CONVOLUTION]:
        return max(_of_convolution(op, graph) for op in convolutions)
    products = [op for op in graph.ops if op.name == PRODUCT]
    if not products:
        pools = any(op.name == POOL_GRADIENT for op in graph.ops)
        return POOL_GRADIENT_LAG if pools else OTHER_LAG
    lag = max(_of_product(op, graph) for op in products)
    return max(lag, SEVERAL_LAG) if len(products) > 1 else lag


def _of_product(product: Op, graph: Graph) -> float:
    left, right = (graph.types[v] for v in product.operands)
    names = ("lhs_batching_dimensions", "rhs_contracting_dimensions", "lhs_contracting_dimensions")
    batch, right_terms, left_terms = (cast(Sequence[int], product[n]) for n in names)
    pages = prod(left.shape[d] for d in batch)
    rows = left.elements // max(1, pages * prod(left.shape[d] for d in left_terms))
    columns = right.elements // max(1, pages * prod(right.shape[d] for d in right_terms))
    if 1 < min(rows, columns) <= FEW_ROWS:
        return FEW_ROWS_LAG
    return PRODUCT_LAG if left.dtype in ("f32", "f64") else NARROW_LAG


def _of_convolution(convolution: Op, graph: Graph) -> float:
    """Inserted zeros cost nothing: five of five took 1.7 to 2.4 times the roofline without them."""

    def ints(name: str) -> Sequence[int]:
        return cast(Sequence[int], convolution[name])

    if _is_window_larger(convolution, graph):
        return MOST_LAG
    window = prod(_extents(convolution, graph, 1, "kernel_spatial_dimensions"))
    outputs = graph.types[convolution.results[0]].shape
    places = prod(outputs[d] for d in ints("output_spatial_dimensions"))
    spatial = len(ints("input_spatial_dimensions"))
    is_inner = convolution["input_feature_dimension"] != spatial + 1
    image = graph.types[convolution.operands[0]].shape
    features = image[cast(int, convolution["input_feature_dimension"])]
    is_wide = window >= WIDE and window > places and features > 1
    groups = cast(int, convolution["feature_group_count"]) * cast(
        int, convolution["batch_group_count"]
    )
    lag = PLAIN_LAG * groups
    lag *= WIDE_LAG if is_wide else FEATURES_FIRST_LAG if is_inner else 1.0
    return min(lag * (DEEP_LAG if spatial > 2 else 1.0), MOST_LAG)


def _extents(convolution: Op, graph: Graph, operand: int, dimensions: str) -> list[int]:
    shape = graph.types[convolution.operands[operand]].shape
    return [shape[d] for d in cast(Sequence[int], convolution[dimensions])]


def _is_window_larger(convolution: Op, graph: Graph) -> bool:
    """Whether the window of a convolution is longer than its image somewhere."""
    image = _extents(convolution, graph, 0, "input_spatial_dimensions")
    window = _extents(convolution, graph, 1, "kernel_spatial_dimensions")
    return any(w > i for w, i in zip(window, image, strict=True))

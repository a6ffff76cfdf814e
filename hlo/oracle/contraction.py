"""dot_general and convolution, as sums of products."""

from dataclasses import replace
from math import prod
from typing import cast

import numpy as np

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.oracle.bounded import UNKNOWN, Bounded
from hlotune.hlo.oracle.boxes import assemble, extents, slabs
from hlotune.hlo.oracle.convolution import Convolution
from hlotune.hlo.oracle.products import Products, factor
from hlotune.hlo.oracle.request import Request
from hlotune.hlo.oracle.tiles import Worth, amplified

SLAB_ELEMENTS = 1 << 22
"""How many elements of an operand are looked at together."""


def dot_general(request: Request) -> tuple[Bounded, ...]:
    left_batch, right_batch = (
        request.ints("lhs_batching_dimensions"),
        request.ints("rhs_batching_dimensions"),
    )
    left_terms, right_terms = (
        request.ints("lhs_contracting_dimensions"),
        request.ints("rhs_contracting_dimensions"),
    )
    left_shape, right_shape = request.type(0).shape, request.type(1).shape
    left_free = [d for d in range(len(left_shape)) if d not in left_batch + left_terms]
    right_free = [d for d in range(len(right_shape)) if d not in right_batch + right_terms]
    batch = request.box[: len(left_batch)]
    rows = request.box[len(batch) : len(batch) + len(left_free)]
    columns = request.box[len(batch) + len(left_free) :]
    sizes = tuple(prod(extents(b)) for b in (batch, rows, columns))
    sums = Products(sizes, prod(left_shape[d] for d in left_terms), request.result.dtype)
    line = max(sizes[0] * sizes[1], sizes[0] * sizes[2], 1)
    for terms in slabs(tuple(left_shape[d] for d in left_terms), SLAB_ELEMENTS // line):
        request.require_time()
        left_box = assemble(
            len(left_shape), (left_batch, batch), (left_free, rows), (left_terms, terms)
        )
        right_box = assemble(
            len(right_shape), (right_batch, batch), (right_free, columns), (right_terms, terms)
        )
        count = prod(extents(terms))
        left_order, right_order = (
            (*left_batch, *left_free, *left_terms),
            (*right_batch, *right_terms, *right_free),
        )
        a = _arranged(request.factor(0, left_box), left_order, (sizes[0], sizes[1], count))
        b = _arranged(request.factor(1, right_box), right_order, (sizes[0], count, sizes[2]))
        sums.add(factor(a, sums.floating), factor(b, sums.floating))
    return (sums.finish().move(lambda x: x.reshape(request.shape)),)


def _arranged(x: Bounded, order: tuple[int, ...], shape: tuple[int, ...]) -> Bounded:
    return x.move(lambda a: a.transpose(order).reshape(shape))


def terms_of(graph: Graph, op: Op) -> int:
    """How many products a dot or a convolution adds up for each element; 0 for other operations."""
    if op.name == "stablehlo.dot_general":
        shape = graph.types[op.operands[0]].shape
        return prod(shape[d] for d in cast(tuple[int, ...], op["lhs_contracting_dimensions"]))
    if op.name == "stablehlo.convolution":
        shape = graph.types[op.operands[1]].shape
        return prod(shape) // shape[cast(int, op["kernel_output_feature_dimension"])]
    return 0


def convolution(request: Request) -> tuple[Bounded, ...]:
    return (Convolution(request).evaluate(),)


def in_tiles(request: Request, sums: Bounded, outputs: int, worth: Worth) -> Bounded:
    """What a convolution gives that is computed in tiles of so many outputs an axis.

    `sums` is what it gives tap by tap: the value is the same, the bound is wider.
    """
    c = Convolution(request)
    wider = amplified(c, outputs, worth)
    known = np.where(np.isnan(wider), UNKNOWN, wider)  # infinities among what is transformed
    return replace(sums, bound=np.maximum(sums.bound, c.arranged(known)))

"""One dimension of a contraction's sums, contracted with random weights, without the sums.

A contraction is linear in each operand.  So the sums of its result C, weighed over a dimension that
C has from one operand alone, are the contraction with that operand weighed in the same way: of a
product C r = A (B r), of a convolution conv(x, W) r = conv(x, W r).  That takes as many times fewer
products as the dimension has elements.  R. Freivalds, "Probabilistic machines can use less running
time", IFIP Congress 1977, checks products of matrices so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.oracle.bounded import Bounded, Float, exact
from hlotune.hlo.oracle.boxes import Box, slices, whole
from hlotune.hlo.oracle.contraction import convolution, dot_general, terms_of
from hlotune.hlo.oracle.request import Request

DOT, CONVOLUTION = "stablehlo.dot_general", "stablehlo.convolution"
PIECE_ELEMENTS = 1 << 18
"""Elements that are widened to f64 together, so that they stay in a cache."""
_UNARY = {f"stablehlo.{name}" for name in ("convert", "transpose", "reshape", "negate")}
_BINARY = {f"stablehlo.{name}" for name in ("add", "subtract", "multiply", "divide", "maximum")}


@dataclass(frozen=True, slots=True)
class Step:
    """An operation that can be undone, and the position of its operand that has the sums."""

    op: Op
    carried: int
    shape: tuple[int, ...]
    """The shape of the operand that has the sums."""

    @property
    def other(self) -> int | None:
        """The number of the other operand, of which no sums are behind."""
        return self.op.operands[1 - self.carried] if len(self.op.operands) == 2 else None


@dataclass(frozen=True, slots=True)
class Way:
    """How one result is made of the sums of one contraction."""

    contraction: Op
    steps: tuple[Step, ...]
    """From the result back to the sums."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension that a contraction's result has from one operand; each of `groups` parts of it
    is contracted apart.
    """

    operand: int
    of_operand: int
    of_result: int
    groups: int = 1


def way_of(graph: Graph, result: int) -> Way | None:
    """None where anything but a chain of operations that can be undone leads to the result."""
    producers = {v: op for op in graph.ops for v in op.results}
    summed = _behind_contractions(graph)
    value, steps = graph.results[result], list[Step]()
    while value in summed:
        op = producers[value]
        if terms_of(graph, op):
            return Way(op, tuple(steps)) if summed.isdisjoint(op.operands) else None
        carried = [n for n, v in enumerate(op.operands) if v in summed]
        if len(carried) != 1 or op.name not in (_UNARY if len(op.operands) == 1 else _BINARY):
            return None
        if op.name == "stablehlo.divide" and carried != [0]:
            return None
        value = op.operands[carried[0]]
        steps.append(Step(op, carried[0], graph.types[value].shape))
    return None


def _behind_contractions(graph: Graph) -> set[int]:
    found = set[int]()
    for op in graph.ops:
        captures = {outside for region in op.regions for _, outside in region.captures}
        if terms_of(graph, op) or not found.isdisjoint({*op.operands, *captures}):
            found |= set(op.results)
    return found


def longest_dimension(graph: Graph, op: Op) -> Dimension | None:
    """The dimension that leaves least to be computed; None where all have one element."""

    def size(d: Dimension) -> int:
        return graph.types[op.results[0]].shape[d.of_result] // d.groups

    found = max(_dimensions(graph, op), key=size, default=None)
    return found if found is not None and size(found) > 1 else None


def _dimensions(graph: Graph, op: Op) -> Iterator[Dimension]:
    def numbers(name: str) -> tuple[int, ...]:
        return cast(tuple[int, ...], op[name])

    def number(name: str) -> int:
        return cast(int, op[name])

    if op.name == CONVOLUTION:
        groups = number("feature_group_count") * number("batch_group_count")
        features = number("kernel_output_feature_dimension"), number("output_feature_dimension")
        yield Dimension(1, *features, groups)
        if number("batch_group_count") == 1:
            yield Dimension(0, number("input_batch_dimension"), number("output_batch_dimension"))
        return
    place = len(numbers("lhs_batching_dimensions"))
    for operand, side in enumerate(("lhs", "rhs")):
        bound = {
            *numbers(f"{side}_batching_dimensions"),
            *numbers(f"{side}_contracting_dimensions"),
        }
        for d in range(len(graph.types[op.operands[operand]].shape)):
            if d not in bound:
                yield Dimension(operand, d, place)
                place += 1


def weighed(values: NDArray[Any], dimension: int, weights: Float, groups: int = 1) -> Float:
    """The sums over one dimension of values times weights, in f64; a part of it for each group."""
    shape = values.shape
    inner = prod(shape[dimension + 1 :])
    flat = np.ascontiguousarray(values).reshape(-1, groups, shape[dimension] // groups, inner)
    parts = weights.reshape(groups, 1, -1)
    sums = np.empty((flat.shape[0], groups, inner))
    each = max(1, PIECE_ELEMENTS // max(1, shape[dimension] * inner))
    for start in range(0, flat.shape[0], each):
        piece = flat[start : start + each].astype(np.float64)
        if inner == 1:
            sums[start : start + each, :, 0] = np.einsum("ogn,gn->og", piece[..., 0], parts[:, 0])
        else:
            sums[start : start + each] = np.matmul(parts, piece)[:, :, 0]
    return sums.reshape(*shape[:dimension], groups, *shape[dimension + 1 :])


def projected(
    graph: Graph, op: Op, operands: Sequence[Float], dimension: Dimension, weights: Float
) -> Float:
    """What `weighed` gives of the sums of a contraction, computed without them.

    The operands are whole, and integers times a power of two; all that is added is exact in f64
    where `weights` times the largest sum times the dimension is below 2**53.
    """
    given = list(operands)
    groups = dimension.groups
    given[dimension.operand] = weighed(
        given[dimension.operand], dimension.of_operand, weights, groups
    )
    types = list(graph.types)
    shape = list(graph.types[op.results[0]].shape)
    shape[dimension.of_result] = groups
    types[op.results[0]] = TensorType(tuple(shape), "f64")
    numbers = tuple(range(len(types), len(types) + len(given)))  # both may be one value
    types += [TensorType(x.shape, "f64") for x in given]
    small = replace(graph, types=tuple(types))

    def value(number: int, box: Box) -> Bounded:
        return exact(given[numbers.index(number)][slices(box)], "f64")

    asked = Request(small, replace(op, operands=numbers), whole(shape), value)
    (sums,) = (dot_general if op.name == DOT else convolution)(asked)
    return np.asarray(sums.value)

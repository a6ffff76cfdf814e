"""Updates of one box of a tensor whose place is known: `x.at[1:-1].set(y)`.

JAX writes them as a scatter of one index, which is a constant, or as a dynamic_update_slice.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op
from hlotune.hlo.to_compute.contractions import numbers

UPDATES = frozenset({"stablehlo.scatter", "stablehlo.dynamic_update_slice"})
FEW = 64
"""Elements of the largest index that is looked at."""


def merges(op: Op) -> bool:
    """Whether an operation is a scatter that merges updates with what stands at their places."""
    return op.name == "stablehlo.scatter" and bool(op.regions[0].ops)


def box_start(graph: Graph, op: Op, makers: Mapping[int, Op]) -> tuple[int, ...] | None:
    """Where an update begins along each dimension of its operand; None where it is no box inside.

    `makers` has the operation that gives each value.
    """
    if op.name == "stablehlo.dynamic_update_slice":
        found = [constant(graph, v, makers) for v in op.operands[2:]]
        start = None if None in found else tuple(int(x[0]) for x in found if x is not None)
    else:
        start = _scattered(graph, op, makers)
    whole, box = (graph.types[v].shape for v in (op.operands[0], updates(op)))
    if start is None or len(box) != len(whole):
        return None
    inside = all(s >= 0 and s + n <= m for s, n, m in zip(start, box, whole, strict=True))
    return start if inside else None


def updates(op: Op) -> int:
    """The value that an update puts into its box."""
    return op.operands[1 if op.name == "stablehlo.dynamic_update_slice" else 2]


def constant(graph: Graph, value: int, makers: Mapping[int, Op]) -> tuple[int, ...] | None:
    """The elements of a small constant, in order, or of what is put together of some."""
    shape, op = graph.types[value].shape, makers.get(value)
    if op is None or prod(shape) > FEW or graph.types[value].dtype[0] not in "iu":
        return None
    if op.name == "stablehlo.constant":
        literal = op["value"]
        if not isinstance(literal, Literal):
            return None
        return tuple(int(x) for x in np.broadcast_to(literal.array(), shape).flat)
    parts = [constant(graph, v, makers) for v in op.operands]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if op.name == "stablehlo.concatenate" and len(shape) == 1:
        return tuple(x for part in known for x in part)
    if op.name == "stablehlo.reshape" or (
        op.name == "stablehlo.broadcast_in_dim" and len(known[0]) == prod(shape)
    ):
        return known[0]
    if op.name == "stablehlo.broadcast_in_dim" and len(known[0]) == 1:
        return known[0] * prod(shape)
    return None


def _scattered(graph: Graph, op: Op, makers: Mapping[int, Op]) -> tuple[int, ...] | None:
    """The one index of a scatter that replaces a whole box, for all dimensions."""
    if (
        len(op.operands) != 3
        or op.regions[0].ops
        or op.regions[0].results != (op.regions[0].arguments[1],)
    ):
        return None
    rank = len(graph.types[op.operands[0]].shape)
    whole = numbers(op, "update_window_dims") == tuple(range(rank))
    alone = not (numbers(op, "inserted_window_dims") or numbers(op, "input_batching_dims"))
    found = constant(graph, op.operands[1], makers)
    places: Sequence[int] = numbers(op, "scatter_dims_to_operand_dims")
    if not whole or not alone or found is None or len(found) != len(places):
        return None
    start = dict(zip(places, found, strict=True))
    return tuple(start.get(d, 0) for d in range(rank))

"""Updates of one box of a tensor whose place is known: `x.at[1:-1].set(y)`.

JAX writes them as a scatter of one index, which is a constant, or as a dynamic_update_slice.
"""

from collections.abc import Mapping, Sequence

from hlotune.hlo.constants import integers
from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import numbers

UPDATES = frozenset({"stablehlo.scatter", "stablehlo.dynamic_update_slice"})


def merges(op: Op) -> bool:
    """Whether an operation is a scatter that merges updates with what stands at their places."""
    return op.name == "stablehlo.scatter" and bool(op.regions[0].ops)


def box_start(graph: Graph, op: Op, makers: Mapping[int, Op]) -> tuple[int, ...] | None:
    """Where an update begins along each dimension of its operand; None where it is no box inside.

    `makers` has the operation that gives each value.
    """
    if op.name == "stablehlo.dynamic_update_slice":
        found = [integers(graph, v, makers) for v in op.operands[2:]]
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
    found = integers(graph, op.operands[1], makers)
    places: Sequence[int] = numbers(op, "scatter_dims_to_operand_dims")
    if not whole or not alone or found is None or len(found) != len(places):
        return None
    start = dict(zip(places, found, strict=True))
    return tuple(start.get(d, 0) for d in range(rank))

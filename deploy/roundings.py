"""How far a program's own roundings may take its results, whatever types these have."""

from collections.abc import Mapping
from math import sqrt

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.sites.region import UNROUNDED
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.operations import OPERATIONS

CONVERT = "stablehlo.convert"
MOVING = UNROUNDED | {"stablehlo.dynamic_update_slice", "stablehlo.iota"}


def roundings(graph: Graph, eps: Mapping[str, float]) -> float:
    """The relative error of all roundings of a graph, taken for independent: the root of the sum of
    their squares.  A loop's are counted once.

    Operations that give operands as they are, as rows that are looked up in a table of bf16, do not
    round, and neither do conversions to types that hold all values of the former one.

    Args:
        eps: half the distance between neighbours at 1, of each type that has one.
    """
    return sqrt(_squares(graph, eps))


def _squares(graph: Graph, eps: Mapping[str, float]) -> float:
    own = sum(_rounded(graph, op, eps) ** 2 for op in graph.ops)
    return own + sum(_squares(region, eps) for op in graph.ops for region in op.regions)


def _rounded(graph: Graph, op: Op, eps: Mapping[str, float]) -> float:
    if op.regions:  # these have the operations that compute
        return 0.0
    to = max((eps.get(graph.types[v].dtype, 0.0) for v in op.results), default=0.0)
    if op.name == CONVERT:
        return 0.0 if _holds(to, graph.types[op.operands[0]].dtype, eps) else to
    row = OPERATIONS.get(op.name.partition(".")[2])
    is_exact = row is not None and row.error is not None and row.error.kind in ("exact", "extreme")
    return 0.0 if is_exact or op.name in MOVING else to


def _holds(to: float, former: str, eps: Mapping[str, float]) -> bool:
    """Whether a type whose `eps` is `to` has all values of a former type, but for their range."""
    if former in eps:
        return to <= eps[former]
    bits = 1 if former == "i1" else 8 * BYTES.get(former, 8)
    return to * 2.0**bits <= 1.0

"""How coarsely a program rounds on the way to its results, whatever types these have."""

from collections.abc import Mapping

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.sites.region import UNROUNDED
from hlotune.schedules.ir.operations import OPERATIONS

CONVERT = "stablehlo.convert"
MOVING = UNROUNDED | {"stablehlo.dynamic_update_slice", "stablehlo.iota"}


def coarsest(graph: Graph, eps: Mapping[str, float]) -> float:
    """Half the distance between neighbours at 1 of the coarsest type that an operation rounds to.

    0 where none rounds.  Operations that give operands as they are, as rows that are looked up in a
    table of bf16, do not round, and neither do conversions to finer types.
    """
    own = (_rounded_to(graph, op, eps) for op in graph.ops)
    inner = (coarsest(region, eps) for op in graph.ops for region in op.regions)
    return max((*own, *inner), default=0.0)


def _rounded_to(graph: Graph, op: Op, eps: Mapping[str, float]) -> float:
    if op.regions:  # these have the operations that compute
        return 0.0
    to = max((eps.get(graph.types[v].dtype, 0.0) for v in op.results), default=0.0)
    if op.name == CONVERT:
        return to if to > eps.get(graph.types[op.operands[0]].dtype, 0.0) else 0.0
    row = OPERATIONS.get(op.name.partition(".")[2])
    is_exact = row is not None and row.error is not None and row.error.kind in ("exact", "extreme")
    return 0.0 if is_exact or op.name in MOVING else to

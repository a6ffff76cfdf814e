"""Which results of a program the oracle can evaluate, and why it cannot evaluate the others."""

from dataclasses import dataclass

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.operations import RANDOM
from hlotune.hlo.oracle.evaluation import rule
from hlotune.hlo.oracle.request import unsupported
from hlotune.schedules.dtypes import has_kernels
from hlotune.schedules.errors import UnsupportedKernel


@dataclass(frozen=True, slots=True)
class Gap:
    """Why there is no reference for a result."""

    reason: str
    is_repeatable: bool = True
    """Whether two calls give the same; otherwise nothing can be held against anything."""


DRAWN_ANEW = Gap(f"its values are drawn anew in each call ({RANDOM})", is_repeatable=False)


def gaps(graph: Graph) -> tuple[Gap | None, ...]:
    """For each result what the oracle lacks for it; None where it lacks nothing."""
    found: dict[int, Gap] = {}
    for argument in graph.arguments:
        dtype = graph.types[argument].dtype
        if not has_kernels(dtype):
            found[argument] = _of_type(dtype)
    for op in graph.ops:
        captured = (outside for region in op.regions for _, outside in region.captures)
        behind = [found[v] for v in (*op.operands, *captured) if v in found]
        if (own := _gap(op, graph)) is not None:
            behind.append(own)
        if behind:
            first = next((gap for gap in behind if not gap.is_repeatable), behind[0])
            found.update(dict.fromkeys(op.results, first))
    return tuple(found.get(r) for r in graph.results)


def _gap(op: Op, graph: Graph) -> Gap | None:
    """What the oracle lacks for an operation itself, and for those in its regions."""
    if op.name == RANDOM:
        return DRAWN_ANEW
    strange = next((d for v in op.results if not has_kernels(d := graph.types[v].dtype)), None)
    if strange is not None:
        return _of_type(strange)
    try:
        rule(op)
    except UnsupportedKernel as error:
        return Gap(str(error))
    inner = (gap for region in op.regions for o in region.ops if (gap := _gap(o, region)))
    return next(inner, None)


def _of_type(dtype: str) -> Gap:
    return Gap(str(unsupported("values of a type that the oracle knows", dtype)))

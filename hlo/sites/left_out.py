"""Operations of a program that are in no kernel, with the reason of each."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.fusible import INDEX_MAPS, MOVES
from hlotune.hlo.sites.region import BITS
from hlotune.schedules.ir.operations import OPERATIONS

if TYPE_CHECKING:
    from hlotune.hlo.frontends.program import Program
    from hlotune.hlo.sites.sites import Site

FREE = INDEX_MAPS | MOVES | {"stablehlo.constant", "stablehlo.iota"}
"""Operations that are copies or parts of others' kernels, or that cost nothing by themselves."""
FLOW = frozenset({"stablehlo.while", "stablehlo.case", "stablehlo.if"})
"""Loops and branches, of which kernels are inside."""
NO_CODE = "there is no code for it yet"
NO_RULE = "no rule makes kernels of it"
OF_ITS_TYPES = "not of these types or attributes"
OF_ITS_BITS = "the types are not of one width, or last bits are rounded otherwise in each kernel"
PLACED = "its place is known at run time alone, and XLA writes it in place where it may"


def left_out(program: "Program", sites: "Sequence[Site]") -> tuple[str, ...]:
    """What XLA keeps whatever is tuned: `stablehlo.sort (2 times): no rule makes kernels of it`.

    Of the function's own region; loops, branches, index maps and constants are left away.
    """
    graph = program.graph
    covered = frozenset[int]().union(*(s.ops for s in sites if not s.path))
    told: Counter[tuple[str, str]] = Counter()
    for index, op in enumerate(graph.ops):
        if index not in covered and op.name not in FLOW and not _is_free(graph, op):
            told[op.name, _reason(op)] += 1
    return tuple(f"{name}{_times(n)}: {reason}" for (name, reason), n in told.items())


def _is_free(graph: Graph, op: Op) -> bool:
    """Whether an operation costs nothing: an index map, or one of scalars alone."""
    return op.name in FREE or all(graph.types[r].elements <= 1 for r in op.results)


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _reason(op: Op) -> str:
    row = OPERATIONS.get(op.name.partition(".")[2])
    if op.name == BITS:
        return OF_ITS_BITS
    if op.name in KERNELS_ELEMENTWISE:
        return OF_ITS_TYPES
    if row is not None:
        return NO_CODE
    if op.name == "stablehlo.dynamic_update_slice":
        return PLACED
    return NO_RULE

"""Scalars that a region computes from its arguments and from constants: counters and places."""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.hlo.oracle.elementwise import is_elementwise
from hlotune.hlo.sites.scopes import Scope

SAME = frozenset({"stablehlo.reshape", "stablehlo.broadcast_in_dim"})
"""Operations that give a scalar as it is."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """The operations of a region, all on single elements, that some of its values need."""

    operations: tuple[int, ...]
    """Their indices, in order."""
    leaves: frozenset[int]
    """Values of the region that they begin with: its arguments and captures."""


def scalars_behind(scope: Scope, values: Sequence[int]) -> Scalars | None:
    """What computes some scalars of a region; None where other operations have part in it."""
    graph = scope.graph
    operations, leaves = set[int](), set[int]()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        index = scope.producers.get(value)
        if graph.types[value].elements != 1:
            return None
        if index is None:
            leaves.add(value)
        elif index not in operations:
            op = graph.ops[index]
            if not (op.name == "stablehlo.constant" or op.name in SAME or is_elementwise(op)):
                return None
            operations.add(index)
            waiting += op.operands
    return Scalars(tuple(sorted(operations)), frozenset(leaves))

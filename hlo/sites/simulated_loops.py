"""Loops whose condition depends on nothing but constants, run on their scalars to be counted."""

from collections.abc import Sequence

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op
from hlotune.hlo.oracle.bounded import Bounded, exact
from hlotune.hlo.oracle.elementwise import fold
from hlotune.hlo.sites.scalars import scalars_behind
from hlotune.hlo.sites.scopes import Scope

MOST_TRIPS = 4096
"""A loop that runs longer is not counted so: each trip takes some 50 microseconds."""


def simulated_trips(scope: Scope, operation: int) -> int | None:
    """How often a loop runs; None where that depends on data, or it runs too long to be counted."""
    condition, body = scope.regions_of(operation)
    positions = _positions(condition, body)
    if positions is None:
        return None
    known = [scope.literal(scope.graph.ops[operation].operands[p]) for p in positions]
    test = _part(condition, condition.graph.results, positions)
    step = _part(body, [body.graph.results[p] for p in positions], positions)
    state = [_scalar(literal) for literal in known if literal is not None]
    if test is None or step is None or len(state) < len(known):
        return None
    with np.errstate(all="ignore"):
        return _counted(test, step, state)


def _counted(test: Graph, step: Graph, state: Sequence[Bounded]) -> int | None:
    for trips in range(MOST_TRIPS):
        (more,) = fold(test, state, {})
        if not more.is_exact:
            return None
        if not more.value:
            return trips
        state = fold(step, state, {})
    return None


def _positions(condition: Scope, body: Scope) -> list[int] | None:
    """The loop variables on which the condition depends, in this trip or in a later one."""
    found, waiting = set[int](), [(condition, condition.graph.results[0])]
    while waiting:
        scope, value = waiting.pop()
        needs = scalars_behind(scope, [value])
        if needs is None:
            return None
        for leaf in needs.leaves:
            position = scope.carried(leaf)
            if scope.literal(leaf) is None and position is None:
                return None
            if scope.literal(leaf) is None and position is not None and position not in found:
                found.add(position)
                waiting.append((body, body.graph.results[position]))
    return sorted(found)


def _part(scope: Scope, results: Sequence[int], positions: Sequence[int]) -> Graph | None:
    """A function of some loop variables that gives some scalars of a region."""
    needs = scalars_behind(scope, results)
    if needs is None:
        return None
    constants = [
        Op("stablehlo.constant", (), (leaf,), (("value", literal),))
        for leaf in sorted(needs.leaves)
        if (literal := scope.literal(leaf)) is not None
    ]
    return Graph(
        types=scope.graph.types,
        arguments=tuple(scope.graph.arguments[p] for p in positions),
        ops=(*constants, *(scope.graph.ops[i] for i in needs.operations)),
        results=tuple(results),
    )


def _scalar(literal: Literal) -> Bounded:
    return exact(literal.array(), literal.type.dtype)

"""Regions of a program: where they are, how often they run, and where their values come from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from hlotune.hlo.constants import literal_of
from hlotune.hlo.graph import Graph, Literal, Op

LOOP = "stablehlo.while"
CONTROL_FLOW = (LOOP, "stablehlo.if", "stablehlo.case")
CONDITION, BODY = 0, 1
"""The regions of a while."""


@dataclass(frozen=True, eq=False)
class Scope:
    """The function, or a region of control flow in it.

    `path` is (operation, region, operation, region, ...) from the function inwards; `weight` how
    often the region runs in one run of the program (`trip_counts.py`).
    """

    graph: Graph
    path: tuple[int, ...] = ()
    outer: "Scope | None" = None
    weight: float = 1.0

    @cached_property
    def producers(self) -> dict[int, int]:
        """The operation that defines each value, where one does."""
        return {r: i for i, op in enumerate(self.graph.ops) for r in op.results}

    def producer(self, value: int) -> Op | None:
        """The operation that defines a value; None for arguments and captures."""
        index = self.producers.get(value)
        return None if index is None else self.graph.ops[index]

    @cached_property
    def numbers(self) -> dict[int, Literal | None]:
        """What `hlo/constants.py` has found of values: numbers that all their elements are."""
        return {}

    @cached_property
    def captures(self) -> dict[int, int]:
        return dict(self.graph.captures)

    @property
    def holder(self) -> Op:
        """The operation that this region belongs to."""
        assert self.outer is not None, "the function belongs to no operation"
        return self.outer.graph.ops[self.path[-2]]

    def regions_of(self, operation: int, runs: Sequence[float] = ()) -> tuple["Scope", ...]:
        """Regions of control flow that stands here.

        Args:
            runs: how often each of them runs when the operation is reached; once by default.
        """
        regions = self.graph.ops[operation].regions
        return tuple(
            Scope(region, (*self.path, operation, j), self, self.weight * times)
            for j, (region, times) in enumerate(
                zip(regions, runs or (1.0,) * len(regions), strict=True)
            )
        )

    def literal(self, value: int) -> Literal | None:
        """What a value always is, where that is evident."""
        scope, value = self.origin(value)
        return literal_of(scope.producer(value))

    def constant(self, value: int) -> Literal | int | None:
        """The value of a constant, or the program's argument that is marked as one."""
        literal = self.literal(value)
        if literal is not None:
            return literal
        origin, there = self.origin(value)
        marked = origin.outer is None and there in origin.graph.constants
        return there if marked else None

    def origin(self, value: int) -> tuple["Scope", int]:
        """Where a value comes from, through captures and what a loop carries along unchanged."""
        if self.outer is None:
            return self, value
        if value in self.captures:
            return self.outer.origin(self.captures[value])
        carried = self.carried(value)
        if carried is not None and self._is_invariant(carried):
            return self.outer.origin(self.holder.operands[carried])
        return self, value

    def carried(self, value: int) -> int | None:
        """The position of a loop-carried value among the operands of the loop."""
        if self.outer is None or self.holder.name != LOOP:
            return None
        arguments = self.graph.arguments
        return arguments.index(value) if value in arguments else None

    def _is_invariant(self, position: int) -> bool:
        body = self.holder.regions[BODY]
        return body.results[position] == body.arguments[position]


def scopes(
    graph: Graph, runs: Mapping[tuple[int, ...], Sequence[float]] = MappingProxyType({})
) -> Iterator[Scope]:
    """The function itself, then all regions of control flow in it, outer ones first.

    Args:
        runs: how often each region of an operation runs, by the operation's place.
    """
    waiting = [Scope(graph)]
    while waiting:
        scope = waiting.pop(0)
        yield scope
        for i, op in enumerate(scope.graph.ops):
            if op.name in CONTROL_FLOW:
                waiting.extend(scope.regions_of(i, runs.get((*scope.path, i), ())))

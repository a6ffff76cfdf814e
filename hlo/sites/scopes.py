"""Regions of a program: where they are, how often they run, and where their values come from."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hlotune.hlo.graph import Graph, Literal, Op

CONTROL_FLOW = ("stablehlo.while", "stablehlo.if", "stablehlo.case")
CONDITION, BODY = 0, 1
"""The regions of a while."""


@dataclass(frozen=True, eq=False)
class Scope:
    """The function, or a region of control flow in it.

    `path` is (operation, region, operation, region, ...) from the function inwards; `weight` how
    often the region runs in one run of the program, where that is evident.
    """

    graph: Graph
    path: tuple[int, ...] = ()
    outer: "Scope | None" = None
    weight: float = 1.0

    @cached_property
    def producers(self) -> dict[int, int]:
        """The operation that defines each value, where one does."""
        return {r: i for i, op in enumerate(self.graph.ops) for r in op.results}

    @cached_property
    def captures(self) -> dict[int, int]:
        return dict(self.graph.captures)

    @property
    def holder(self) -> Op:
        """The operation that this region belongs to."""
        assert self.outer is not None, "the function belongs to no operation"
        return self.outer.graph.ops[self.path[-2]]

    def inner(self) -> Iterator["Scope"]:
        """Regions of the control flow that stands here."""
        for i, op in enumerate(self.graph.ops):
            if op.name in CONTROL_FLOW:
                weight = self.weight * (trips(self, i) if op.name == "stablehlo.while" else 1)
                for j, region in enumerate(op.regions):
                    yield Scope(region, (*self.path, i, j), self, weight)

    def literal(self, value: int) -> Literal | None:
        """What a value always is, where that is evident."""
        scope, value = self.origin(value)
        producer = scope.producers.get(value)
        if producer is None or scope.graph.ops[producer].name != "stablehlo.constant":
            return None
        literal = scope.graph.ops[producer]["value"]
        return literal if isinstance(literal, Literal) else None

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
        if self.outer is None or self.holder.name != "stablehlo.while":
            return None
        arguments = self.graph.arguments
        return arguments.index(value) if value in arguments else None

    def _is_invariant(self, position: int) -> bool:
        body = self.holder.regions[BODY]
        return body.results[position] == body.arguments[position]


def scopes(graph: Graph) -> Iterator[Scope]:
    """The function itself, then all regions of control flow in it, outer ones first."""
    waiting = [Scope(graph)]
    while waiting:
        scope = waiting.pop(0)
        yield scope
        waiting.extend(scope.inner())


def trips(scope: Scope, operation: int) -> int:
    """How often a while runs: known for counters that go from a constant to a constant, else 1."""
    op = scope.graph.ops[operation]
    condition = Scope(op.regions[CONDITION], (*scope.path, operation, CONDITION), scope)
    body = Scope(op.regions[BODY], (*scope.path, operation, BODY), scope)
    test = _producer(condition, condition.graph.results[0])
    if test is None or test.name != "stablehlo.compare" or test["comparison_direction"] != "LT":
        return 1
    counter = condition.carried(test.operands[0])
    if counter is None:
        return 1
    step = _producer(body, body.graph.results[counter])
    if step is None or step.name != "stablehlo.add":
        return 1
    if step.operands[0] != body.graph.arguments[counter]:
        return 1
    first = _integer(scope, op.operands[counter])
    limit = _integer(condition, test.operands[1])
    stride = _integer(body, step.operands[1])
    if first is None or limit is None or stride is None or stride < 1:
        return 1
    return max(0, -(-(limit - first) // stride))


def _producer(scope: Scope, value: int) -> Op | None:
    index = scope.producers.get(value)
    return None if index is None else scope.graph.ops[index]


def _integer(scope: Scope, value: int) -> int | None:
    literal = scope.literal(value)
    if literal is None or literal.type.elements != 1 or literal.type.dtype[0] not in "iu":
        return None
    return int(literal.array().reshape(-1)[0])

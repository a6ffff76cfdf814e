"""What a rule is given: one operation, the wanted box of its result, a way to its operands."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, cast

from hlotune.hlo.default_precision import leaves_precision
from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.oracle.bounded import Bounded, as_multiplied
from hlotune.hlo.oracle.boxes import Box, extents, whole
from hlotune.schedules.errors import UnsupportedKernel

Values = Callable[[int, Box], Bounded]
"""A box of a value of a graph, by the value's number."""


class OutOfTime(Exception):
    """The oracle was given less time than it needs."""


@dataclass(frozen=True, slots=True)
class Request:
    graph: Graph
    op: Op
    box: Box
    """The part of the first result that is asked for; all results of an operation with a rule by
    boxes have one shape.
    """
    values: Values
    deadline_s: float = inf
    """The time of `time.monotonic()` after which the regions that it runs, and the next piece of a
    long sum, raise OutOfTime.
    """

    def require_time(self) -> None:
        """Raises OutOfTime after the deadline."""
        if time.monotonic() > self.deadline_s:
            raise OutOfTime

    @property
    def shape(self) -> tuple[int, ...]:
        return extents(self.box)

    @property
    def result(self) -> TensorType:
        return self.graph.types[self.op.results[0]]

    def type(self, operand: int) -> TensorType:
        return self.graph.types[self.op.operands[operand]]

    def operand(self, operand: int, box: Box | None = None) -> Bounded:
        """A box of an operand, or all of it."""
        number = self.op.operands[operand]
        return self.values(number, whole(self.graph.types[number].shape) if box is None else box)

    def factor(self, operand: int, box: Box) -> Bounded:
        """A box of an operand of a product, as devices may round it ahead of multiplying."""
        return as_multiplied(self.operand(operand, box), leaves_precision(self.op))

    def operands(self) -> tuple[Bounded, ...]:
        return tuple(self.operand(i) for i in range(len(self.op.operands)))

    def scalar(self, operand: int) -> Any:
        return self.operand(operand).value[()]

    def ints(self, name: str) -> tuple[int, ...]:
        return cast(tuple[int, ...], self.op[name])

    def pairs(self, name: str) -> tuple[tuple[int, int], ...]:
        return cast(tuple[tuple[int, int], ...], self.op[name])

    def number(self, name: str) -> int:
        return cast(int, self.op[name])

    def within(self, box: Box) -> "Request":
        """The same operation, asked for another box."""
        return replace(self, box=box)

    def split(self, pieces: int) -> list[Box]:
        """Cuts the box along its longest dimension."""
        if pieces <= 1 or prod(self.shape) <= 1:
            return [self.box]
        d = max(range(len(self.box)), key=lambda i: self.shape[i])
        low, high = self.box[d]
        step = max(1, -(-(high - low) // pieces))
        cuts = [(i, min(i + step, high)) for i in range(low, high, step)]
        return [(*self.box[:d], cut, *self.box[d + 1 :]) for cut in cuts]


def unsupported(expected: str, got: str) -> UnsupportedKernel:
    return UnsupportedKernel(f"expected {expected}, got {got}; leave it to the default compiler")


Rule = Callable[[Request], tuple[Bounded, ...]]
"""All results of an operation, in the box that was asked for."""

"""Whether the oracle will get through a program in time, by what it has done of it so far."""

import time
from itertools import accumulate
from math import inf, prod
from typing import cast

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.oracle.contraction import terms_of
from hlotune.hlo.oracle.request import OutOfTime
from hlotune.hlo.to_compute.cumulative import cumulative

ELEMENT = 100
"""An element of an operand or a result takes as long as so many products."""
FIRST, EARLY = 0.02, 0.1
"""The shares of its time after which the oracle may give up, and does where it looks hopeless."""
HOPELESS = 2.0
"""It looks so where it would take so many times as long as it has; before that, as many times more
as it is too early."""
FASTEST = 2e9
"""Products a second that it gets through at most: one core of a Zen 3 got through 0.4 billion in a
convolution of windows, beside other work."""
LOOP, WINDOWS = "stablehlo.while", "stablehlo.reduce_window"


class Pace:
    """The work of a graph's operations, and when their evaluation began."""

    def __init__(self, graph: Graph, limit_s: float) -> None:
        self._limit_s, self._start_s = limit_s, time.monotonic()
        self._done = list(accumulate(_work(graph, op) for op in graph.ops))
        products = sum(_products(graph, op) for op in graph.ops)
        self._is_too_much = products > HOPELESS * FASTEST * limit_s
        self._is_known = limit_s < inf and all(op.name != LOOP for op in graph.ops)

    def look(self, position: int) -> None:
        """Raises OutOfTime where the operations before a position took so long that all of them
        would take far longer than there is time; ahead of the first where they would in any case.
        Nobody knows how often a loop goes round.
        """
        if self._is_known and self._is_too_much:
            raise OutOfTime
        spent_s = time.monotonic() - self._start_s
        if not position or not self._is_known or spent_s < FIRST * self._limit_s:
            return
        earlier = max(1.0, EARLY * self._limit_s / spent_s)
        expected_s = spent_s * self._done[-1] / max(1, self._done[position - 1])
        if expected_s > HOPELESS * earlier * self._limit_s:
            raise OutOfTime


def _taps(graph: Graph, op: Op) -> int:
    """How many elements the oracle copies for each result: those of its window."""
    if op.name != WINDOWS or cumulative(graph, op):
        return 0
    return prod(cast(tuple[int, ...], op["window_dimensions"]))


def _work(graph: Graph, op: Op) -> int:
    elements = sum(graph.types[v].elements for v in (*op.operands, *op.results))
    elements += _taps(graph, op) * sum(graph.types[v].elements for v in op.results)
    return ELEMENT * elements + _products(graph, op)


def _products(graph: Graph, op: Op) -> int:
    return terms_of(graph, op) * sum(graph.types[v].elements for v in op.results)

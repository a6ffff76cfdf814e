"""Whether the oracle will get through a program in time, by what it has done of it so far."""

import os
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
FASTEST = 16 * 5e9 * (os.cpu_count() or 1)
"""Products a second that no machine gets through: 16 multiply-adds of f64 a cycle, which are two
vectors of 64 bytes, at 5 GHz on all processors.  A dot is a product of matrices of f64 by BLAS, of
which one core of a Zen 3 does some 5 billion a second, bounds and all."""
DOT, LOOP, WINDOWS = "stablehlo.dot_general", "stablehlo.while", "stablehlo.reduce_window"


class Pace:
    """The work of a graph's operations, and when their evaluation began."""

    def __init__(self, graph: Graph, limit_s: float) -> None:
        self._limit_s, self._start_s = limit_s, time.monotonic()
        self._done = list(accumulate(_work(graph, op) for op in graph.ops))
        products = sum(_products(graph, op) for op in graph.ops if op.name == DOT)
        self._is_too_much = products > HOPELESS * FASTEST * limit_s
        self._is_known = limit_s < inf and all(op.name != LOOP for op in graph.ops)

    def look(self, position: int) -> None:
        """Raises OutOfTime where the operations before a position took so long that all of them
        would take far longer than there is time; ahead of the first where the dots alone would on
        any machine.  Of a convolution's products those in holes and padding are not computed, and
        nobody knows how often a loop goes round.
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

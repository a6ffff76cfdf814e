"""What holding a tuned program against its default takes, told beforehand by some of its numbers.

Results may be as large as all weights of a program: then comparing them takes longer than the calls
that make them.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from hlotune.deploy.conditioning import nudged
from hlotune.deploy.plain_values import apart, lost
from hlotune.hlo.graph import Graph

Array = NDArray[Any]
SAMPLE = 1 << 21
"""Numbers that are looked at beforehand."""
TIES = {"stablehlo.select_and_scatter", "stablehlo.compare", "stablehlo.sign"}
"""Operations behind which the last bit of a number may decide which way others go."""


def checking_s(
    graph: Graph, values: Sequence[Array], results: Sequence[Array], call_s: float
) -> float:
    """The seconds of checking a call beside the call itself, where no bound says what is right.

    Results are compared, and where roundings may decide something the default is called once more
    with its inputs moved by one (`conditioning.py`), and its results are compared as well.
    """
    comparing_s = _seconds_of_all(results, _compared)
    if not may_fall_otherwise(graph):
        return comparing_s
    return 3 * comparing_s + call_s + _seconds_of_all(values, lambda x: nudged([x]))


def may_fall_otherwise(graph: Graph) -> bool:
    """Whether roundings may decide which way numbers of a program go."""
    return any(
        op.name in TIES or any(may_fall_otherwise(region) for region in op.regions)
        for op in graph.ops
    )


def _compared(x: Array) -> None:
    apart(x, x)
    lost(x, x)


def _seconds_of_all(arrays: Sequence[Array], look: Callable[[Array], object]) -> float:
    """The seconds of looking at all numbers, by those of a part of the largest array."""
    if not arrays:
        return 0.0
    part = max(arrays, key=lambda x: x.size).reshape(-1)[:SAMPLE]
    start_s = perf_counter()
    look(part)
    return (perf_counter() - start_s) * sum(x.size for x in arrays) / max(1, part.size)

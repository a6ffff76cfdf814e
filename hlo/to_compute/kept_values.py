"""Which values of a group get a stage of their own, and which of its parts hang together."""

from collections import defaultdict
from itertools import pairwise

from hlotune.hlo.graph import Graph
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.conversions import short_name
from hlotune.hlo.to_compute.expressions import ELEMENTWISE
from hlotune.hlo.to_compute.updates import merges

CHEAP = frozenset({
    "add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor", "not", "negate", "abs",
    "clamp", "select", "compare", "convert", "square", "sign", "is_finite", "floor", "ceil",
})  # fmt: skip
"""Operations that stages compute again rather than read from memory."""
MANY_OPERATIONS = 16
"""Operations from which on a value that is stored anyway is rather read than computed again."""
REDUCTIONS = frozenset({"reduce", "reduce_window"})
SCATTER = "select_and_scatter"


def argument_groups(graph: Graph) -> dict[int, int]:
    """By value a number that it has in common with all that hang on an argument with it.

    Updates of arrays that have nothing but numbers in common are stages of their own.
    """
    group = list(range(len(graph.types)))

    def root(v: int) -> int:
        while group[v] != v:
            group[v] = group[group[v]]
            v = group[v]
        return v

    constant = set[int]()
    for op in graph.ops:
        operands = [v for v in op.operands if v not in constant and graph.types[v].elements > 1]
        if not operands and not set(op.operands) - constant:
            constant |= set(op.results)
        for a, b in pairwise([*operands, *op.results]):
            group[root(a)] = root(b)
    return {v: root(v) for v in range(len(graph.types))}


def _long_results(graph: Graph) -> frozenset[int]:
    """Results that take many operations from what is in memory to them."""
    costs = dict[int, int]()
    for op in graph.ops:
        name = short_name(op)
        cost = sum(costs.get(v, 0) for v in op.operands) + (name in ELEMENTWISE)
        restarts = name in REDUCTIONS or name == "dot_general" or merges(op)
        costs.update(dict.fromkeys(op.results, 0 if restarts else min(cost, MANY_OPERATIONS)))
    return frozenset(v for v in graph.results if costs.get(v, 0) >= MANY_OPERATIONS)


def kept_values(graph: Graph) -> frozenset[int]:
    """Values that are not cheap and that several stages read, and those padded between elements.

    Results over different axes, and reductions, are computed by different stages.  A result is
    there to be read, so it is computed again only where that takes few operations.
    """
    many = _long_results(graph)
    readers = defaultdict[int, set[object]](set)
    for value in graph.results:
        readers[value].add(graph.types[value].shape)
    kept = set[int]()
    for op in reversed(graph.ops):
        stages = set().union(*(readers[r] for r in op.results))
        name = short_name(op)
        if name in REDUCTIONS or name == "dot_general" or merges(op):
            stages = {op.results}
        elif (
            name in ELEMENTWISE and len(stages) > 1 and (name not in CHEAP or op.results[0] in many)
        ):
            kept.add(op.results[0])
        if kept & set(op.results):
            stages = {op.results}
        if name == SCATTER:
            stages = {op.results}
        if name == "pad" and any(numbers(op, "interior_padding")):
            kept.add(op.operands[0])
        for operand in op.operands:
            readers[operand] |= stages
    return frozenset(kept - set(graph.arguments))

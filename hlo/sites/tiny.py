"""Kernels without a contraction that take too little time to be worth a call of their own."""

from collections import defaultdict

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.sites.sites import Site
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.machine_rates import COMMON
from hlotune.schedules.targets.target import Target

LOOKING_UP = frozenset({"stablehlo.gather", "stablehlo.dynamic_slice"})
"""Operations that read their first operand at places that data decides, and nothing else of it."""


def tiny(site: Site, target: Target) -> str | None:
    """Why a kernel without a contraction is not worth a call, or None where it is."""
    if site.pattern in ("contraction", "attention"):
        return None
    graph = graph_of(site.kernel)
    moved = _moved_bytes(graph)
    operations = sum(
        max(graph.types[v].elements for v in _walked(op)) for op in graph.ops if op.operands
    )
    rates = target.rates if isinstance(target, CpuTarget) else COMMON
    bytes_s = moved / rates.elementwise_bytes_per_s
    expected_s = max(bytes_s, operations / rates.elementwise_operations_per_s)
    if expected_s >= rates.worthless_s:
        return None
    return (
        f"expected a kernel of at least {1e6 * rates.worthless_s:g} us, got one of about "
        f"{1e6 * expected_s:.2g} us, which is not worth a call; the default compiler fuses it "
        "with others"
    )


def _walked(op: Op) -> tuple[int, ...]:
    """The values that an operation walks through: not what it looks up in."""
    return (*op.operands[op.name in LOOKING_UP :], *op.results)


def _moved_bytes(graph: Graph) -> int:
    """The bytes of arguments and results; of an argument that is only looked up in, those read."""
    read, whole = defaultdict[int, int](int), set[int](graph.results)
    for op in graph.ops:
        whole |= {*_walked(op), *(outside for x in op.regions for _, outside in x.captures)}
        if op.name in LOOKING_UP:
            read[op.operands[0]] += graph.types[op.results[0]].bytes
    arguments = zip(graph.arguments, graph.argument_types, strict=True)
    given = sum(t.bytes if a in whole else min(t.bytes, read[a]) for a, t in arguments)
    return given + sum(t.bytes for t in graph.result_types)

"""Short loops over large tensors, unrolled: their trips then fuse into one kernel.

JAX lowers its random numbers for CPUs to a loop of five trips, each of which reads and writes all
bits that are drawn; XLA does not look across the trips.
"""

from collections.abc import Iterator
from typing import Any

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.versions import ir
from hlotune.hlo.mlir.walking import replace
from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.scopes import LOOP
from hlotune.hlo.sites.trip_counts import flows

MOST_TRIPS = 8
MOST_OPERATIONS = 1024
"""The most operations that one unrolled loop may have, all trips together."""
LEAST_ELEMENTS = 4096
"""The least elements of the largest tensor that a loop carries: smaller loops cost little."""
LIGHT = KERNELS_ELEMENTWISE | {
    "stablehlo.constant", "stablehlo.iota", "stablehlo.broadcast_in_dim", "stablehlo.reshape",
    "stablehlo.slice",
}  # fmt: skip
"""Operations that fuse with one another, in whatever number."""


def with_short_loops_unrolled(module: mlir.Module, graph: Graph) -> mlir.Module | None:
    """A copy of a module in normal form without its short loops of elementwise operations; None
    where it has none.  `graph` is that of the module.

    A loop is short where its counter says that it has at most `MOST_TRIPS` trips.
    """
    if not any(True for _ in _short(graph)):
        return None
    copy = mlir.parse(module.bytecode())
    places = mlir.numbered(copy)
    with copy.op.context, ir.Location.unknown():
        for path, trips in list(_short(graph)):
            _unroll(places[path[:-1]].operations[path[-1]], trips)
        copy.run("canonicalize", "cse")
    return copy


def _short(graph: Graph) -> Iterator[tuple[tuple[int, ...], int]]:
    """The places of the loops to unroll, and their trips."""
    for path, flow in flows(graph, {}).items():
        op = _operation(graph, path)
        if op.name != LOOP or flow.why != "its counter" or not 0 < flow.runs[0] <= MOST_TRIPS:
            continue
        body, trips = op.regions[1], int(flow.runs[0])
        if _is_light(body, trips) and _is_large(body):
            yield path, trips


def _operation(graph: Graph, path: tuple[int, ...]) -> Op:
    *outer, last = path
    for operation, region in zip(outer[::2], outer[1::2], strict=True):
        graph = graph.ops[operation].regions[region]
    return graph.ops[last]


def _is_light(body: Graph, trips: int) -> bool:
    return len(body.ops) * trips <= MOST_OPERATIONS and all(op.name in LIGHT for op in body.ops)


def _is_large(body: Graph) -> bool:
    return max((body.types[a].elements for a in body.arguments), default=0) >= LEAST_ELEMENTS


def _unroll(loop: Any, trips: int) -> None:
    """Puts copies of the body, one a trip, in the place of a loop."""
    block = loop.regions[1].blocks[0]
    *operations, last = [o.operation for o in block.operations]
    values = list(loop.operands)
    with ir.InsertionPoint(loop):
        for _ in range(trips):
            found = dict(zip(block.arguments, values, strict=True))
            for operation in operations:
                copy = operation.clone()
                for k, operand in enumerate(operation.operands):
                    copy.operands[k] = found.get(operand, operand)
                found |= dict(zip(operation.results, copy.results, strict=True))
            values = [found.get(v, v) for v in last.operands]
    replace([loop], list(loop.results), values)

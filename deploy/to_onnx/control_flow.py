"""Loops and branches, whose bodies are graphs inside of the graph."""

from typing import Any

from hlotune.deploy.to_onnx.writer import Rule, Tensor, Writer
from hlotune.hlo.graph import Graph, Op


def while_(w: Writer, op: Op) -> list[Tensor]:
    """A Loop whose body ends with the condition of the next iteration."""
    condition, body = op.regions
    state = [w.full(v) for v in op.operands]
    for _, outside in (*condition.captures, *body.captures):
        w.full(outside)
    (begins,) = w.inline(condition, state)
    carried = [w.fresh(x.dtype, x.shape) for x in state]
    inside, after = w.subgraph(body, carried)
    (goes_on,) = Writer(
        condition, w.shared, inside.nodes,
        dict(zip(condition.arguments, after, strict=True))
        | {here: w.values[there] for here, there in condition.captures},
    ).write()  # fmt: skip
    number, before = w.fresh("i64", ()), w.fresh("i1", ())
    graph = inside.graph_of("body", [number, before, *carried], [goes_on, *after])
    types = [(x.dtype, x.shape) for x in state]
    return w.several("Loop", [None, begins, *state], types, body=graph)


def if_(w: Writer, op: Op) -> list[Tensor]:
    yes, no = op.regions
    return _branches(w, op, w.full(op.operands[0]), _graph(w, yes), _graph(w, no))


def case(w: Writer, op: Op) -> list[Tensor]:
    """One choice of two inside of another; an index out of range means the last branch."""
    return _chosen(w, op, w.full(op.operands[0]), 0)


def _chosen(w: Writer, op: Op, index: Tensor, first: int) -> list[Tensor]:
    region = op.regions[first]
    if first == len(op.regions) - 1:
        for _, outside in region.captures:
            w.full(outside)
        return w.inline(region, ())
    here = w.of("Equal", index, w.constant(first, "i32"), dtype="i1")
    inside = Writer(w.graph, w.shared, [], dict(w.values))
    rest = inside.graph_of("otherwise", [], _chosen(inside, op, index, first + 1))
    return _branches(w, op, here, _graph(w, region), rest)


def _graph(w: Writer, region: Graph) -> Any:
    for _, outside in region.captures:
        w.full(outside)
    inside, results = w.subgraph(region, ())
    return inside.graph_of("branch", [], results)


def _branches(w: Writer, op: Op, condition: Tensor, yes: Any, no: Any) -> list[Tensor]:
    kinds = [w.type(v) for v in op.results]
    types = [(kind.dtype, kind.shape) for kind in kinds]
    return w.several("If", [condition], types, then_branch=yes, else_branch=no)


RULES: dict[str, Rule] = {
    "stablehlo.while": while_,
    "stablehlo.if": if_,
    "stablehlo.case": case,
}

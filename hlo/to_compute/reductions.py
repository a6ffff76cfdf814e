"""The region of a reduction as a monoid."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op, numpy_dtype
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.expressions import ELEMENTWISE, converted, direction, short_name
from hlotune.schedules.dtypes import accumulator, is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import Apply, Const, Expr, Given
from hlotune.schedules.ir.monoids import (
    AND,
    ARGMAX,
    ARGMIN,
    MAX,
    MIN,
    OR,
    PROD,
    SUM,
    Monoid,
    Values,
)
from hlotune.schedules.ir.operations import OPERATIONS

OF_NUMBERS = {
    "add": SUM, "multiply": PROD, "maximum": MAX, "minimum": MIN, "and": AND, "or": OR,
}  # fmt: skip
"""Monoids by the one operation of their regions."""
OF_TRUTHS = {"add": OR, "multiply": AND, "maximum": OR, "minimum": AND, "and": AND, "or": OR}
"""The same where the elements are i1."""
DIRECTIONS = {"GT": "argmax", "GE": "argmax", "LT": "argmin", "LE": "argmin"}


def monoid_of(op: Op, dtypes: Sequence[str], starts: Sequence[Expr]) -> Monoid:
    """The monoid of a reduction of parts of some types that begins at `starts`.

    A region of one operation for all its parts is a monoid that everybody knows; any other one is
    a monoid of its own, whose identities are the values that the reduction begins at, as StableHLO
    has it.

    Raises UnsupportedKernel for a region that is not elementwise, or begins at computed values.
    """
    region = op.regions[0]
    if region.captures:
        raise _strange("values from outside of it")
    plain = plain_operation(region)
    if plain is not None:
        table = OF_TRUTHS if set(dtypes) == {"i1"} else OF_NUMBERS
        if plain in table and ("i1" not in dtypes or set(dtypes) == {"i1"}):
            return table[plain]
    if any(not isinstance(start, Const) for start in starts):
        raise _strange("a start that is no constant")
    if any(t.shape for t in region.types):
        raise _strange("values that are no scalars")
    return _of_region(region, tuple(cast(Const, s) for s in starts), tuple(dtypes))


def plain_operation(region: Graph) -> str | None:
    """The one operation that merges each part with its own counterpart; None where it is more."""
    count, makers = len(region.results), {r: op for op in region.ops for r in op.results}
    names = set[str]()
    for k, result in enumerate(region.results):
        op = makers.get(result)
        own = {region.arguments[k], region.arguments[count + k]}
        if op is None or set(op.operands) != own:
            return None
        names.add(short_name(op))
    return names.pop() if len(names) == 1 else None


def unit_reductions(graph: Graph) -> frozenset[int]:
    """Operations, by index, that reduce over extents of 1 from an identity: reshapes."""
    makers = {r: op for op in graph.ops for r in op.results}
    found = set[int]()
    for i, op in enumerate(graph.ops):
        if short_name(op) != "reduce" or len(op.results) != 1:
            continue
        shape, dtype = graph.types[op.operands[0]].shape, graph.types[op.results[0]].dtype
        ones = all(shape[d] == 1 for d in numbers(op, "dimensions"))
        plain, start = plain_operation(op.regions[0]), makers.get(op.operands[1])
        table = OF_TRUTHS if dtype == "i1" else OF_NUMBERS
        if ones and plain in table and start is not None and short_name(start) == "constant":
            (identity,) = table[plain].identities((accumulator(dtype),))
            literal = cast(Literal, start["value"])
            if isinstance(literal, Literal) and literal.array().reshape(-1)[0] == identity.value:
                found.add(i)
    return frozenset(found)


def without_unit_reductions(graph: Graph) -> Graph:
    """The graph with reshapes for reductions over extents of 1."""
    found = unit_reductions(graph)
    ops = tuple(
        Op("stablehlo.reshape", op.operands[:1], op.results) if i in found else op
        for i, op in enumerate(graph.ops)
    )
    return replace(graph, ops=ops)


def name_of_region(region: Graph) -> str:
    """`argmax` or `argmin` where values are compared and two parts are selected by that."""
    compared = [op for op in region.ops if short_name(op) == "compare"]
    numbers = [op for op in compared if set(op.operands) & set(region.arguments[:1])]
    kinds = {
        DIRECTIONS[d] for op in numbers if (d := str(op["comparison_direction"])) in DIRECTIONS
    }
    selects = any(short_name(op) == "select" for op in region.ops)
    if len(region.results) == 2 and selects and len(kinds) == 1:
        return kinds.pop()
    return "fold"


def _of_region(region: Graph, starts: tuple[Const, ...], dtypes: tuple[str, ...]) -> Monoid:
    def identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
        return starts

    def merge(old: Values, new: Values) -> Values:
        held: dict[int, Expr] = dict(zip(region.arguments, (*old, *new), strict=True))
        for op in region.ops:
            args = tuple(held[v] for v in op.operands)
            held[op.results[0]] = _applied(op, args, region.types[op.results[0]].dtype)
        return tuple(converted(held[r], old[k].dtype) for k, r in enumerate(region.results))

    found = Monoid(name_of_region(region), len(starts), identities, merge)
    for way, known in (("GT", ARGMAX), ("LT", ARGMIN)):
        if len(dtypes) == 2 and is_float(dtypes[0]):
            given = tuple(Given(k, dtype) for k, dtype in enumerate(dtypes * 2))
            if found.merged(dtypes) == _first_extreme(way, given[:2], given[2:]):
                return replace(found, merge=known.merge)
    return found


def _first_extreme(direction: str, old: Values, new: Values) -> Values:
    """How JAX writes argmax and argmin: the first NaN stays as long as values come in order.

    We merge lanes in another order, by a merge that gives the lowest index of several NaN in any.
    """
    (a, i), (b, j) = old, new
    ahead = Apply("compare_" + direction, (a, b), "i1")
    ahead = Apply("or", (ahead, Apply("compare_NE", (a, a), "i1")), "i1")
    equal, lower = Apply("compare_EQ", (a, b), "i1"), Apply("compare_LT", (i, j), "i1")
    kept = Apply("or", (ahead, Apply("and", (equal, lower), "i1")), "i1")
    return Apply("select", (ahead, a, b), a.dtype), Apply("select", (kept, i, j), i.dtype)


def _applied(op: Op, args: tuple[Expr, ...], dtype: str) -> Expr:
    name = short_name(op)
    if name == "constant":
        literal = cast(Literal, op["value"])
        wide = accumulator(literal.type.dtype)
        first = np.frombuffer(literal.data, numpy_dtype(literal.type.dtype))[:1]
        return Const(first.astype(numpy_dtype(wide)).item(), wide)
    if name not in ELEMENTWISE:
        raise _strange(op.name)
    if name == "convert":
        return converted(args[0], accumulator(dtype))
    if name == "compare":
        return Apply(f"compare_{direction(op)}", args, "i1")
    definition = OPERATIONS[name].definition
    return definition(*args) if definition else Apply(name, args, accumulator(dtype))


def _strange(got: str) -> UnsupportedKernel:
    return UnsupportedKernel(
        f"expected a reduction by elementwise operations of its parts from constants, got {got}; "
        "the kernel stays with the default compiler"
    )

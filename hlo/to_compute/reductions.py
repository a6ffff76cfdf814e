"""The region of a reduction as a monoid."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Graph, Literal, Op, numpy_dtype
from hlotune.hlo.oracle import evaluate
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.conversions import converted, short_name
from hlotune.hlo.to_compute.expressions import ELEMENTWISE, direction
from hlotune.schedules.dtypes import accumulator, is_float, is_unsigned
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
    least,
    most,
)
from hlotune.schedules.ir.operations import OPERATIONS

OF_NUMBERS = {
    "add": SUM, "multiply": PROD, "maximum": MAX, "minimum": MIN, "and": AND, "or": OR,
}  # fmt: skip
"""Monoids by the one operation of their regions."""
OF_TRUTHS = {"add": OR, "multiply": AND, "maximum": OR, "minimum": AND, "and": AND, "or": OR}
"""The same where the elements are i1."""
DIRECTIONS = {"GT": "argmax", "GE": "argmax", "LT": "argmin", "LE": "argmin"}


def monoid_of(
    op: Op, dtypes: Sequence[str], starts: Sequence[Expr], *, counted: bool = False
) -> Monoid:
    """The monoid of a reduction of parts of some types that begins at `starts`.

    A region of one operation for each of its parts is made of monoids that everybody knows.  Any
    other one is a monoid of its own, whose identities are the values that the reduction begins at.

    `counted` says that the second part is the position along the reduction: of equal values the
    first is then the one of the lowest number, in whatever order they are merged.

    Raises UnsupportedKernel for a region that is not elementwise, or begins at computed values, or
    at values that change what they are merged with.
    """
    region = op.regions[0]
    if region.captures:
        raise _strange("values from outside of it")
    parts = parts_of(region, dtypes)
    if parts is not None:
        return parts[0] if len(set(parts)) == 1 else _side_by_side(parts)
    if any(not isinstance(start, Const) for start in starts):
        raise _strange("a start that is no constant")
    if any(t.shape for t in region.types):
        raise _strange("values that are no scalars")
    return _of_region(region, tuple(cast(Const, s) for s in starts), tuple(dtypes), counted)


def parts_of(region: Graph, dtypes: Sequence[str]) -> tuple[Monoid, ...] | None:
    """The monoid of each part where one operation merges it with its own counterpart."""
    names = operations_of_parts(region)
    if names is None:
        return None
    tables = [OF_TRUTHS if dtype == "i1" else OF_NUMBERS for dtype in dtypes]
    found = [table.get(name) for table, name in zip(tables, names, strict=True)]
    return tuple(m for m in found if m) if all(found) else None


def _side_by_side(parts: tuple[Monoid, ...]) -> Monoid:
    """Several reductions that go over the same points, each by a monoid of one part."""

    def identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
        return tuple(m.identities((d,))[0] for m, d in zip(parts, dtypes, strict=True))

    def merge(old: Values, new: Values) -> Values:
        return tuple(m.merge((a,), (b,))[0] for m, a, b in zip(parts, old, new, strict=True))

    return Monoid("fold", len(parts), identities, merge)


def plain_operation(region: Graph) -> str | None:
    """The one operation that merges each part with its own counterpart; None where it is more."""
    names = set(operations_of_parts(region) or ())
    return names.pop() if len(names) == 1 else None


def operations_of_parts(region: Graph) -> tuple[str, ...] | None:
    """The operation that merges each part with its own counterpart; None where one has several."""
    count, makers = len(region.results), {r: op for op in region.ops for r in op.results}
    names = list[str]()
    for k, result in enumerate(region.results):
        op = makers.get(result)
        own = {region.arguments[k], region.arguments[count + k]}
        if op is None or set(op.operands) != own:
            return None
        names.append(short_name(op))
    return tuple(names)


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


def _of_region(
    region: Graph, starts: tuple[Const, ...], dtypes: tuple[str, ...], counted: bool
) -> Monoid:
    def identities(dtypes: tuple[str, ...]) -> tuple[Const, ...]:
        return starts

    def merge(old: Values, new: Values) -> Values:
        held: dict[int, Expr] = dict(zip(region.arguments, (*old, *new), strict=True))
        for op in region.ops:
            args = tuple(held[v] for v in op.operands)
            held[op.results[0]] = _applied(op, args, region.types[op.results[0]].dtype)
        return tuple(converted(held[r], old[k].dtype) for k, r in enumerate(region.results))

    found = Monoid(name_of_region(region), len(starts), identities, merge)
    if counted and (known := _of_whole_numbers(found, starts, dtypes)) is not None:
        return known
    if not _changes_nothing(region, starts):
        raise _strange(
            f"a start of {', '.join(str(s.value) for s in starts)}, which changes others"
        )
    for way, known in (("GT", ARGMAX), ("LT", ARGMIN)):
        if len(dtypes) == 2 and is_float(dtypes[0]):
            given = tuple(Given(k, dtype) for k, dtype in enumerate(dtypes * 2))
            if found.merged(dtypes) == _first_extreme(way, given[:2], given[2:]):
                return replace(found, merge=known.merge)
    if len(dtypes) == 2:
        given = tuple(Given(k, dtype) for k, dtype in enumerate(dtypes * 2))
        for way, strict in (("GE", "GT"), ("LE", "LT")):
            if found.merged(dtypes) == _kept_if(way, given[:2], given[2:]):
                if not counted:
                    raise _strange("the first of equal values by numbers that do not count them")
                return replace(found, merge=partial(_lowest, strict))
    return found


def _of_whole_numbers(
    found: Monoid, starts: tuple[Const, ...], dtypes: tuple[str, ...]
) -> Monoid | None:
    """Argmax or argmin of numbers or truths that have a least one, and begin there at position 0.

    Where all are equal to it, the first has that position, so the start changes no result; each
    lane begins at a position behind all others.
    """
    if len(dtypes) != 2 or is_float(dtypes[0]):
        return None
    given = tuple(Given(k, dtype) for k, dtype in enumerate(dtypes * 2))
    behind = Const(most(dtypes[1]), dtypes[1])
    for way, known, end in (("GT", ARGMAX, least), ("LT", ARGMIN, most)):
        begins = [int(s.value) for s in starts] == [end(dtypes[0]), 0]
        if begins and found.merged(dtypes) == _first_extreme(way, given[:2], given[2:]):
            return replace(known, identities=lambda _: (starts[0], behind))
    return None


SAMPLES = (-7.25, 3.0, 0.5, -1.0)


def _changes_nothing(region: Graph, starts: tuple[Const, ...]) -> bool:
    """Whether the starts of a reduction, merged with some samples, leave these as they are.

    Lanes and threads begin at them, each for itself.
    """
    kinds = [region.types[v].dtype for v in region.arguments[: len(starts)]]
    first = [_sample(s.value, kind) for s, kind in zip(starts, kinds, strict=True)]
    for k in range(len(SAMPLES)):
        found = [_sample(SAMPLES[k - n], kind) for n, kind in enumerate(kinds)]
        for given in ([*first, *found], [*found, *first]):
            merged = [r.value for r in evaluate(region, given)]
            if not all(np.isclose(a, b) for a, b in zip(merged, found, strict=True)):
                return False
    return True


def _sample(number: float, dtype: str) -> NDArray[Any]:
    if is_float(dtype):
        return np.array(number).astype(numpy_dtype(dtype))
    whole = int(abs(number) if is_unsigned(dtype) else number)
    return np.array(whole != 0 if dtype == "i1" else whole, numpy_dtype(dtype))


def counts_along(graph: Graph, value: int, dimension: int) -> bool:
    """Whether a value is the position along one of its dimensions."""
    maker = next((op for op in graph.ops if value in op.results), None)
    if maker is None:
        return False
    if short_name(maker) == "iota":
        return cast(int, maker["iota_dimension"]) == dimension
    if short_name(maker) != "broadcast_in_dim":
        return False
    places = numbers(maker, "broadcast_dimensions")
    return dimension in places and counts_along(graph, maker.operands[0], places.index(dimension))


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


def _kept_if(direction: str, old: Values, new: Values) -> Values:
    """Argmax and argmin in their shortest form: what came first stays unless others are ahead."""
    kept = Apply("compare_" + direction, (old[0], new[0]), "i1")
    return tuple(Apply("select", (kept, a, b), a.dtype) for a, b in zip(old, new, strict=True))


def _lowest(direction: str, old: Values, new: Values) -> Values:
    """The same in any order of values that are counted: of equal ones the lowest number."""
    (a, i), (b, j) = old, new
    ahead = Apply("compare_" + direction, (b, a), "i1")
    equal, lower = Apply("compare_EQ", (a, b), "i1"), Apply("compare_LT", (j, i), "i1")
    taken = Apply("or", (ahead, Apply("and", (equal, lower), "i1")), "i1")
    return Apply("select", (taken, b, a), a.dtype), Apply("select", (taken, j, i), i.dtype)


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


SCATTERED = (SUM, MAX, MIN)
"""Monoids that scatters may merge updates by, into results of the type that they compute in."""


def scattered_by(op: Op, dtype: str) -> Monoid:
    """The monoid of a scatter.  Raises UnsupportedKernel where it is none of SCATTERED."""
    found = parts_of(op.regions[0], (dtype,))
    if len(op.results) != 1 or found is None or found[0] not in SCATTERED:
        raise _strange("a scatter by another region than a sum, a maximum or a minimum")
    return found[0]

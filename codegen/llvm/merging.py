"""What a monoid merges, as instructions on values that are there already."""

from collections.abc import Sequence

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.values import Value, literal, splat
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import Const, Expr, Given, Load
from hlotune.schedules.ir.monoids import Monoid


def merged(f: Function, monoid: Monoid, old: Sequence[Value], new: Sequence[Value]) -> list[Value]:
    """One tuple of values out of two, all of equal lanes."""
    return evaluated(f, monoid.merged(tuple(value.dtype for value in old)), [*old, *new])


def across_lanes(f: Function, monoid: Monoid, values: Sequence[Value]) -> list[Value]:
    """The lanes of a tuple of vectors merged into one lane, by halves."""
    found = [_padded(f, x, c) for x, c in zip(values, _identities(monoid, values), strict=True)]
    while found[0].lanes > 1:
        half = found[0].lanes // 2
        low, high = ([_part(f, x, start, half) for x in found] for start in (0, half))
        found = merged(f, monoid, low, high)
    return found


def prefixes(f: Function, monoid: Monoid, values: Sequence[Value]) -> list[Value]:
    """A tuple of vectors, each lane merged with all lanes before it: by doubling distances."""
    found, distance = list(values), 1
    while distance < found[0].lanes:
        pairs = zip(found, _identities(monoid, found), strict=True)
        before = [_moved_up(f, x, c, distance) for x, c in pairs]
        found, distance = merged(f, monoid, before, found), 2 * distance
    return found


def last_lane(f: Function, value: Value, active: int) -> Value:
    """A vector with the last of the lanes in use in all lanes."""
    order = ", ".join([f"i32 {active - 1}"] * value.lanes)
    operands = f"{value.type} {value.name}, {value.type} poison"
    name = f.op(f"shufflevector {operands}, <{value.lanes} x i32> <{order}>")
    return Value(name, value.dtype, value.lanes)


def _moved_up(f: Function, value: Value, identity: Const, distance: int) -> Value:
    """The lanes so many places further up, the identity in those that become free."""
    free = literal(identity.value, identity.dtype, value.lanes)
    places = [value.lanes] * distance + list(range(value.lanes - distance))
    order = ", ".join(f"i32 {k}" for k in places)
    operands = f"{value.type} {value.name}, {value.type} {free.name}"
    name = f.op(f"shufflevector {operands}, <{value.lanes} x i32> <{order}>")
    return Value(name, value.dtype, value.lanes)


def _identities(monoid: Monoid, values: Sequence[Value]) -> tuple[Const, ...]:
    return monoid.identities(tuple(x.dtype for x in values))


def _padded(f: Function, value: Value, identity: Const) -> Value:
    """The vector with as many lanes of the identity behind its own as a power of two needs."""
    lanes = 1 << (value.lanes - 1).bit_length()
    if lanes == value.lanes:
        return value
    beside = literal(identity.value, identity.dtype, value.lanes)
    order = ", ".join(f"i32 {min(k, value.lanes)}" for k in range(lanes))
    operands = f"{value.type} {value.name}, {value.type} {beside.name}"
    return Value(f.op(f"shufflevector {operands}, <{lanes} x i32> <{order}>"), value.dtype, lanes)


def _part(f: Function, value: Value, start: int, lanes: int) -> Value:
    if lanes == 1:
        return Value(f.op(f"extractelement {value.type} {value.name}, i32 {start}"), value.dtype, 1)
    order = ", ".join(f"i32 {k}" for k in range(start, start + lanes))
    operands = f"{value.type} {value.name}, {value.type} poison"
    return Value(f.op(f"shufflevector {operands}, <{lanes} x i32> <{order}>"), value.dtype, lanes)


def evaluated(f: Function, exprs: Sequence[Expr], given: Sequence[Value]) -> list[Value]:
    """Expressions over given values, all of equal lanes; what they share is computed once.

    Raises UnsupportedKernel for an operation that has no code.
    """
    lanes, known = given[0].lanes, dict[int, Value]()

    def value(expr: Expr) -> Value:
        if id(expr) not in known:
            known[id(expr)] = fresh(expr)
        return known[id(expr)]

    def fresh(expr: Expr) -> Value:
        if isinstance(expr, Given):
            return given[expr.position]
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype, lanes)
        if isinstance(expr, Load):
            raise UnsupportedKernel(f"expected a merge of given values, got {expr} in it")
        return apply(f, expr.op, tuple(map(value, expr.args)), expr.dtype)

    return [splat(f, value(expr), lanes) for expr in exprs]

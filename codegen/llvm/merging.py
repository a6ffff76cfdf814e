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

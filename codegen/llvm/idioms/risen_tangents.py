"""Hyperbolic tangents to which one is added, as in the Gaussian unit by them: one quotient.

    1 + tanh(u)   ->   2 / (1 + exp(-2 u))

A hyperbolic tangent by itself takes an exponential, a quotient and, around zero, a polynomial.  A
sum with one loses little around zero without that polynomial (1.7 units of the last place, 0.8
with it), and where the tangent is near -1 the quotient has the places that the sum lost.
"""

from collections.abc import Sequence

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.exponentials import one_and_tanh
from hlotune.codegen.llvm.math.tables import looks_up_eight
from hlotune.codegen.llvm.math.values import HELD, Value
from hlotune.codegen.llvm.math.vector_builder import Lanes
from hlotune.schedules.ir.expr import Apply, Const, Expr, operations


def risen_tangent(f: Function, expr: Expr, values: Sequence[Expr]) -> Expr | None:
    """The argument of the hyperbolic tangent that an expression adds one to; None for any other.

    Only of floats where exponentials are by eighths, as it was not measured elsewhere, and where
    the values of its stage need the tangent for nothing else.
    """
    match expr:
        case Apply("add", (Const(value=1), Apply("tanh", (u,)) as tangent), "f32"):
            pass
        case Apply("add", (Apply("tanh", (u,)) as tangent, Const(value=1)), "f32"):
            pass
        case _:
            return None
    if not looks_up_eight(f.module.features):
        return None
    uses = sum(a is tangent for x in operations(values) for a in x.args)
    return u if uses == 1 and all(v is not tangent for v in values) else None


def risen(f: Function, u: Value) -> Value:
    """1 + tanh(u)."""
    return Value(one_and_tanh(Lanes(f, HELD[u.dtype], u.lanes), u.name), u.dtype, u.lanes)

"""Rotations of integers, which programs write as two shifts of one value: one instruction."""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, literal, suffix
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import Apply, Const, Expr


def rotation(expr: Expr) -> tuple[Expr, int] | None:
    """The value that an expression rotates, and by how many places to the left; None for any other.

    It is `x << n | x >> bits - n`, of constant counts.
    """
    match expr:
        case Apply("or", (Apply("shift_left", (x, n)), Apply("shift_right_logical", (y, m)))):
            left, right = _count(n), _count(m)
            bits = 8 * BYTES[expr.dtype]
            if left and right and left + right == bits and (x is y or x == y):
                return x, left
    return None


def _count(expr: Expr) -> int | None:
    match expr:
        case Const():
            return int(expr.value)
        case Apply("subtract", (Const(value=a), Const(value=b))):
            return int(a) - int(b)
    return None


def rotated(f: Function, x: Value, places: int) -> Value:
    """`x` with its bits turned to the left."""
    kind = f"llvm.fshl.{suffix(HELD[x.dtype], x.lanes)}"
    count = literal(places, x.dtype, x.lanes)
    operands = [(v.type, v.name) for v in (x, x, count)]
    return Value(f.intrinsic(kind, x.type, *operands), x.dtype, x.lanes)

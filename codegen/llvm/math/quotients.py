"""Quotients of many numbers by one, by way of its reciprocal.

Processors divide vectors many times slower than they multiply them.
"""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, literal, rounded, splat
from hlotune.codegen.llvm.math.vector_builder import Lanes


def divided(f: Function, a: Value, b: Value, dtype: str) -> Value:
    """The lanes of `a`, each divided by the one number `b`.

    What the product with the reciprocal lacks is found by a multiply-add without a rounding error
    and added (Markstein, "Computation of elementary functions on the IBM RISC System/6000
    processor", 1990), so that nearly all quotients are the nearest number and none is off by more
    than one.  A divisor below 2^-128 (f64: 2^-1024), whose reciprocal is infinite, counts as zero.
    """
    t = Lanes(f, HELD[dtype], a.lanes)
    if b.known is not None:
        wide = splat(f, b, a.lanes)
        return rounded(f, Value(t.divide(a.name, wide.name), dtype, a.lanes))
    one = literal(1.0, b.dtype, 1).name
    reciprocal = Value(f.once(f"fdiv {b.type} {one}, {b.name}"), b.dtype, 1)
    by, share = (splat(f, x, a.lanes).name for x in (b, reciprocal))
    near = f.op(f"fmul {t.type} {a.name}, {share}")
    lacks = t.fma(t.negate(near), by, a.name)
    exact = t.fma(lacks, share, near)
    # no number where the quotient is infinite, or the divisor infinite or zero; zeros lose signs
    some = t.compare("ne", exact, t.number(0))
    return rounded(f, Value(t.select(some, exact, near), dtype, a.lanes))

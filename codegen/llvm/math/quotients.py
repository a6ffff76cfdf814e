"""Quotients of many numbers by one, by way of its reciprocal.

Processors divide vectors many times slower than they multiply them.
"""

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import HELD, Value, literal, rounded, splat, suffix
from hlotune.codegen.llvm.math.vector_builder import Lanes


def divided(f: Function, a: Value, b: Value, dtype: str) -> Value:
    """The lanes of `a`, each divided by the one number `b`.

    The reciprocal is taken in two parts, both of `b`'s sign: a number a little nearer to zero, and
    the rest, which a multiply-add without a rounding error finds (Markstein, "Computation of
    elementary functions on the IBM RISC System/6000 processor", 1990).  The sum of the products
    with both is the nearest number but for one in a million quotients, which is off by one; zeros
    keep their signs, and infinite numbers give what a division gives.

    The parts of a divisor from 2^126 (f64: 2^1022) on have fewer bits, and quotients may be off by
    five.  A divisor below 2^-128 (f64: 2^-1024), whose reciprocal is infinite, counts as zero.
    """
    t = Lanes(f, HELD[dtype], a.lanes)
    if b.known is not None:
        wide = splat(f, b, a.lanes)
        return rounded(f, Value(t.divide(a.name, wide.name), dtype, a.lanes))
    most, rest = (splat(f, x, a.lanes).name for x in _reciprocal(f, b))
    return rounded(f, Value(t.fma(a.name, most, _product(f, t, a.name, rest)), dtype, a.lanes))


def _product(f: Function, t: Lanes, a: str, b: str) -> str:
    return f.op(f"fmul {t.type} {a}, {b}")


def _reciprocal(f: Function, b: Value) -> tuple[Value, Value]:
    """Both parts; twice the same where they are zero, infinite or no number."""
    bits = Lanes(f, HELD[b.dtype], 1).mantissa
    one, less, infinite = (
        literal(x, b.dtype, 1).name for x in (1.0, 1.0 - 2.0 ** (1 - bits), float("inf"))
    )

    def called(name: str, *arguments: str) -> str:
        full = f"llvm.{name}.{suffix(HELD[b.dtype], 1)}"
        types = ", ".join([b.type] * len(arguments))
        f.module.declare(full, f"declare {b.type} @{full}({types})")
        return f.once(f"call {b.type} @{full}({', '.join(f'{b.type} {x}' for x in arguments)})")

    whole = f.once(f"fdiv {b.type} {one}, {b.name}")
    most = f.once(f"fmul {b.type} {whole}, {less}")
    lacks = called("fma", f.once(f"fneg {b.type} {b.name}"), most, one)
    rest = f.once(f"fmul {b.type} {lacks}, {whole}")
    finite = f.once(f"fcmp olt {b.type} {called('fabs', rest)}, {infinite}")
    kept = f.once(f"select i1 {finite}, {b.type} {rest}, {b.type} {most}")
    return Value(most, b.dtype, 1), Value(kept, b.dtype, 1)

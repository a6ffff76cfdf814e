"""Sine, cosine and tangent, of any finite argument.

x = (n + q) pi / 2 with |q| <= 1/2.  A number is a multiple of its last bit; where that is 2^k or
more, 2^k * 2/pi may be reduced modulo 4 beforehand, which leaves a constant.  So numbers fall into
groups by their exponent, each with a 2/pi of its own, in parts whose products with x are exact.
"""

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

from hlotune.codegen.llvm.math.polynomials import COSINE, SINE
from hlotune.codegen.llvm.math.values import suffix, vector
from hlotune.codegen.llvm.math.vector_builder import Lanes

PI_HALF = (1.5707963267948966, 6.123233995736766e-17)
"""pi / 2 and what its rounding loses."""
FLOAT_STEP, DOUBLE_STEP = 27, 16
"""Exponents in a group."""
DOUBLE_GROUPS, DOUBLE_PARTS = 61, 4
TABLE = "@two_over_pi"


Point = tuple[str, str, str]
"""Sine and cosine of what is left of an argument, and the integer n of quarters before it."""


def sine(t: Lanes, x: str) -> str:
    return _unless_tiny(t, x, _of_point(t, x, lambda wide, p: _turned(wide, p, 0)))


def cosine(t: Lanes, x: str) -> str:
    return _of_point(t, x, lambda wide, p: _turned(wide, p, 1))


def tangent(t: Lanes, x: str) -> str:
    return _unless_tiny(t, x, _of_point(t, x, _slope))


def _unless_tiny(t: Lanes, x: str, result: str) -> str:
    tiny = t.compare("lt", t.magnitude(x), t.number(2.0 ** (-t.mantissa // 2 - 1)))
    return t.select(tiny, x, result)


def _of_point(t: Lanes, x: str, function: Callable[[Lanes, Point], str]) -> str:
    """A function of the point on the circle; floats are computed as doubles."""
    if t.element == "double":
        r, rest, n = _reduced_double(t, x)
        return function(t, (*_on_circle(t, r, rest, "double"), n))
    wide = Lanes(t.f, "double", t.lanes)
    x = t.f.op(f"fpext {t.type} {x} to {wide.type}")
    r, n = _reduced_float(wide, x)
    result = function(wide, (*_on_circle(wide, r, None, "float"), n))
    return t.f.op(f"fptrunc {wide.type} {result} to {t.type}")


def _turned(t: Lanes, point: Point, quadrant: int) -> str:
    """The sine after so many quarters more."""
    odd, even, n = point
    n = t.on_bits("add", n, quadrant)
    across = t.bits_are("ne", t.on_bits("and", n, 1), 0)
    value = t.select(across, even, odd)
    down = t.bits_are("ne", t.on_bits("and", n, 2), 0)
    return t.select(down, t.negate(value), value)


def _slope(t: Lanes, point: Point) -> str:
    """The tangent: a half turn changes nothing, a quarter turns the quotient over."""
    odd, even, n = point
    across = t.bits_are("ne", t.on_bits("and", n, 1), 0)
    above = t.select(across, t.negate(even), odd)
    return t.divide(above, t.select(across, odd, even))


def _on_circle(t: Lanes, r: str, rest: str | None, precision: str) -> tuple[str, str]:
    """Sine and cosine of r + rest for |r| <= pi / 4."""
    z = t.multiply(r, r)
    odd = t.multiply(t.multiply(z, r), t.polynomial(z, SINE[precision]))
    even = t.multiply(t.multiply(z, z), t.polynomial(z, COSINE[precision]))
    half = t.multiply(z, t.number(0.5))
    base = t.subtract(t.number(1), half)
    # what 1 - z / 2 loses
    even = t.add(even, t.subtract(t.subtract(t.number(1), base), half))
    if rest is not None:
        odd = t.multiply_add(rest, base, odd)
        even = t.multiply_add(t.negate(rest), r, even)
    return t.add(r, odd), t.add(base, even)


# 2/pi ---------------------------------------------------------------------------------------------


@cache
def _two_over_pi(bits: int) -> Fraction:
    """By Machin's formula, pi / 4 = 4 atan(1 / 5) - atan(1 / 239)."""
    one = 1 << bits + 32

    def inverse_tangent(n: int) -> int:
        power, total, k = one // n, 0, 1
        while power:
            total += power // k * (-1) ** (k // 2)
            power, k = power // n**2, k + 2
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return Fraction(round(Fraction(one << bits + 1, pi)), 1 << bits)


def parts(exponent: int, bits: Sequence[int]) -> tuple[float, ...]:
    """2^exponent * 2/pi modulo 4: a multiple of 2^-bit for each of `bits`, and the rest."""
    rest = _two_over_pi(1280) * (1 << exponent)
    rest -= 4 * round(rest / 4)
    result = []
    for bit in bits:
        part = Fraction(round(rest * (1 << bit)), 1 << bit)
        result.append(float(part))
        rest -= part
    return (*result, float(rest))


# reduction ----------------------------------------------------------------------------------------


def _reduced_float(t: Lanes, x: str) -> tuple[str, str]:
    """r and n of a float held as a double: 24 bits of it and 29 of a part make an exact product."""
    scaled, factors = x, [t.number(c) for c in parts(0, (27, 56))]
    size = t.magnitude(x)
    for group in range(1, 4):
        step = FLOAT_STEP * group
        above = t.compare("ge", size, t.number(2.0 ** (23 + step)))
        scaled = t.select(above, t.multiply(x, t.number(2.0**-step)), scaled)
        these = [t.number(c) for c in parts(step, (27, 56))]
        factors = [t.select(above, a, b) for a, b in zip(these, factors, strict=True)]
    first, second, third = (t.multiply(scaled, c) for c in factors)
    first = t.subtract(first, t.nearest(first, 4.0)[0])
    second = t.subtract(second, t.nearest(second, 4.0)[0])
    count, n = t.nearest(t.add(first, second))
    q = t.add(t.add(t.subtract(first, count), second), third)
    return t.multiply(q, t.number(PI_HALF[0])), n


def _reduced_double(t: Lanes, x: str) -> tuple[str, str, str]:
    """r in two numbers, and n, from the products of x with the parts of its 2/pi."""
    field = t.on_bits("and", t.on_bits("lshr", t.bits(x), 52), 0x7FF)
    above = t.on_bits("sub", field, 1023 + 52)
    positive = t.bits_are("sgt", above, 0)
    group = t.on_bits("lshr", t.select_bits(positive, above, t.integer(0)), 4)
    down = t.on_bits("sub", t.integer(0), t.on_bits("shl", group, 4))
    scaled = t.multiply(x, t.power_of_two(down))
    factors = [_part(t, group, k) for k in range(DOUBLE_PARTS)]
    (a, a_rest), (b, b_rest), (c, c_rest) = (t.exact_product(scaled, p) for p in factors[:3])
    # a reaches 2^70, and nearest() only 2^51 of its units
    a = t.subtract(a, t.nearest(a, 2.0**20)[0])
    a, a_rest, b = (t.subtract(v, t.nearest(v, 4.0)[0]) for v in (a, a_rest, b))
    total, lost = _sum(t, [a, a_rest, b])
    count, n = t.nearest(total)
    total = t.subtract(total, count)
    total, lost = _sum(t, [total, *lost, b_rest, c])
    small, lost = _sum(t, [*lost, c_rest, t.multiply(scaled, factors[3])])
    for v in lost:
        small = t.add(small, v)
    q, q_rest = t.exact_sum(total, small)
    r, r_rest = t.exact_product(q, t.number(PI_HALF[0]))
    r_rest = t.multiply_add(q, t.number(PI_HALF[1]), r_rest)
    return (*t.exact_sum(r, t.multiply_add(q_rest, t.number(PI_HALF[0]), r_rest)), n)


def _sum(t: Lanes, terms: list[str]) -> tuple[str, list[str]]:
    """A sum, and what each addition lost."""
    total, lost = terms[0], []
    for term in terms[1:]:
        total, rest = t.exact_sum(total, term)
        lost.append(rest)
    return total, lost


def _part(t: Lanes, group: str, k: int) -> str:
    """Part `k` of 2/pi of each lane's group."""
    t.f.module.declare(TABLE, _table())
    at = t.on_bits("add", t.on_bits("shl", group, 2), k)
    pointers = t.f.op(f"getelementptr double, ptr {TABLE}, {t.integers} {at}")
    if t.lanes == 1:
        return t.f.op(f"load double, ptr {pointers}")
    name = f"llvm.masked.gather.{suffix('double', t.lanes)}.v{t.lanes}p0"
    mask = (vector("i1", t.lanes), "splat (i1 true)")
    where = (vector("ptr", t.lanes), pointers)
    return t.f.intrinsic(name, t.type, where, ("i32", "8"), mask, (t.type, "zeroinitializer"))


@cache
def _table() -> str:
    numbers = [
        part
        for group in range(DOUBLE_GROUPS)
        for part in parts(DOUBLE_STEP * group, (51, 104, 157))
    ]
    bits = (struct.unpack("<Q", struct.pack("<d", n))[0] for n in numbers)
    values = ", ".join(f"double 0x{b:016X}" for b in bits)
    return f"{TABLE} = internal constant [{len(numbers)} x double] [{values}], align 64"

"""The error function and its complement.

Where sixteen lanes can look into a table at once, floats have one polynomial for each of sixteen
intervals.  Otherwise, up to 1, and the complement up to 0.5, are odd polynomials; beyond,
erfc(x) = exp(-x^2) ERFCX(t) / (x + 2) with t = (x - 2) / (x + 2), which is smooth to infinity.
Where exponentials are by eighths, the complement of floats has such a polynomial from 0 on, whose
error at 0 is none.
"""

from hlotune.codegen.llvm.math.exponentials import (
    exponential_at_most_one,
    exponential_in_range,
    exponential_of_sum,
)
from hlotune.codegen.llvm.math.interval_tables import (
    ERF_INTERVALS,
    ERF_LIMIT,
    ERF_TABLE,
    ERFCX_TABLE,
)
from hlotune.codegen.llvm.math.polynomials import ERF, ERFCX, ERFCX_FROM_ZERO
from hlotune.codegen.llvm.math.tables import has_lookups, has_short_lookups, looked_up
from hlotune.codegen.llvm.math.vector_builder import Lanes

ZERO = {"float": 10.5, "double": 27.5}
"""Above it the complement is 0."""


def erf(t: Lanes, x: str) -> str:
    if has_lookups(t):
        return _erf_by_table(t, x)
    size = t.magnitude(x)
    far = t.with_sign(t.subtract(t.number(1), _complement(t, size)), x)
    return t.select(t.compare("lt", size, t.number(1)), _near(t, x), far)


def _erf_by_table(t: Lanes, x: str) -> str:
    """By a polynomial around a point of its own in each of sixteen intervals up to 4.

    The points are such that their values are floats as good as exactly; around 0, x is the first
    term.
    """
    size = t.at_most(t.magnitude(x), ERF_LIMIT)
    large = 1.5 * 2.0**t.mantissa
    counted = t.fma(size, t.number(ERF_INTERVALS), t.number(large))
    point, value, *slopes = looked_up(t, "erf_intervals", ERF_TABLE, t.bits(counted))
    near = t.compare("eq", counted, t.number(large))
    apart = t.subtract(size, point)
    total = slopes[-1]
    for c in reversed(slopes[:-1]):
        total = t.multiply_add(total, apart, c)
    found = t.multiply_add(total, apart, t.select(near, size, value))
    return t.with_sign(found, x)


def erfc(t: Lanes, x: str) -> str:
    if has_lookups(t):
        return _erfc_by_table(t, x)
    if has_short_lookups(t):
        return _erfc_by_quotient(t, x)
    size = t.magnitude(x)
    far = _complement(t, size)
    far = t.select(t.compare("lt", x, t.number(0)), t.subtract(t.number(2), far), far)
    near = t.subtract(t.number(1), _near(t, x))
    return t.select(t.compare("lt", size, t.number(0.5)), near, far)


def _erfc_by_table(t: Lanes, x: str) -> str:
    """exp(-x^2) erfcx(x), the latter by a polynomial for each quarter of an octave of x + 1."""
    size = t.at_most(t.magnitude(x), ZERO[t.element])
    index = t.on_bits("lshr", t.bits(t.add(size, t.number(1))), t.mantissa - 2)
    point, *coefficients = looked_up(t, "erfcx_quarters", ERFCX_TABLE, index)
    apart = t.subtract(size, point)
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = t.multiply_add(total, apart, c)
    square, lost = t.exact_product(size, size)
    e = exponential_in_range(t, t.negate(square), t.negate(lost))
    found = t.multiply(e, total)
    below = t.compare("lt", x, t.number(0))
    return t.select(below, t.subtract(t.number(2), found), found)


def _erfc_by_quotient(t: Lanes, x: str) -> str:
    """exp(-x^2) erfcx(x), the latter by one quotient and one polynomial from 0 on."""
    size = t.at_most(t.magnitude(x), ZERO[t.element])
    share = t.divide(t.number(1), t.add(size, t.number(1)))
    twice = t.multiply(t.add(size, size), share)
    p = t.polynomial_by_halves(t.subtract(twice, t.number(1)), ERFCX_FROM_ZERO[t.element])
    square, lost = t.exact_product(size, size)
    e = exponential_at_most_one(t, t.negate(square), t.negate(lost))
    found = t.multiply(t.multiply(t.multiply_add(twice, p, t.number(1)), share), e)
    below = t.compare("lt", x, t.number(0))
    return t.select(below, t.subtract(t.number(2), found), found)


def _near(t: Lanes, x: str) -> str:
    return t.multiply_add(x, t.polynomial(t.multiply(x, x), ERF[t.element]), x)


def _complement(t: Lanes, x: str) -> str:
    """erfc(x) for x >= 0.5.

    The rounding of x^2 would be an error of many places in its exponential; the square of the
    upper half of the bits of x is exact, and what is left out is small.
    """
    x = t.at_most(x, ZERO[t.element])
    lower = (t.mantissa + 2) // 2
    upper = t.of_bits(t.on_bits("and", t.bits(x), -1 << lower))
    rest = t.multiply(t.subtract(upper, x), t.add(upper, x))
    e = exponential_of_sum(t, t.negate(t.multiply(upper, upper)), rest)
    below = t.add(x, t.number(2))
    p = t.polynomial(t.divide(t.subtract(x, t.number(2)), below), ERFCX[t.element])
    return t.multiply(e, t.divide(p, below))

"""Exponentials, logarithms, and what is made of exponentials.

An exponential takes x = n log(2) + r apart, |r| <= log(2) / 2, and log(2) in two parts, of which
the first has so few bits that n times it is exact.  Where sixteen lanes can look into a table at
once, n counts sixteenths, or 32nds: a float has the power of two of its fraction from there, and r
is so small that a shorter polynomial does.  Elsewhere the last bits of x log2(e) + 1.5 2^m are
those of n, and are shifted to where a float has its exponent.
"""

from hlotune.codegen.llvm.math.interval_tables import (
    EXP_EIGHTH,
    EXP_EIGHTHS,
    EXP_LONG_TABLE,
    EXP_TABLE,
    TANH_TABLE,
)
from hlotune.codegen.llvm.math.polynomials import EXP, EXP_SIXTEENTH, EXP_THIRTY_SECOND, LOG, TANH
from hlotune.codegen.llvm.math.tables import (
    ENTRIES,
    LONG_ENTRIES,
    SHORT_ENTRIES,
    has_lookups,
    has_short_lookups,
    looked_up,
)
from hlotune.codegen.llvm.math.vector_builder import Lanes

LOG2_E = 1.4426950408889634
# log(2) to 15 and 42 bits, and the rest of it
LOG_2 = {
    "float": (0.693145751953125, 1.4286068203094173e-06),
    "double": (0.6931471805598903, 5.497923018708371e-14),
}
RANGE = {"float": (-104.0, 89.0), "double": (-746.0, 710.0)}
"""Beyond it exponentials are 0 and infinity."""
MINUS_ONE = {"float": -18.0, "double": -38.0}
"""Below it exponentials minus one are -1."""
FAR = 0.55
"""From it on hyperbolic tangents are made of exponentials."""
TANH_LIMIT = 9.1
"""Above it the nearest float to a hyperbolic tangent is 1."""
RISEN = (-50.0, 10.0)
"""Below it 1 + tanh(x) is 0 among floats, as exp(-2 x) is infinite, and above it 2."""
FAR_POWER = 64.0
"""Exponent up to which one and a power of two are added: a quotient by it is normal."""
ONE = {"float": 10.0, "double": 20.0}
"""Above it hyperbolic tangents are 1."""
SQRT_HALF = 0.7071067811865476
BELOW_TWO = ~(1 << 30)
"""The bits of a float but for one, without which it is less than two, whatever it was; those of
numbers below two stay."""
LIFT = {"float": 25, "double": 55}
"""What the exponent of a power of two is lifted by so that it is normal where exp(x) is not."""


def exponential(t: Lanes, x: str) -> str:
    return exponential_of_sum(t, x, None)


def exponential_at_most_one(t: Lanes, x: str, rest: str | None = None) -> str:
    """exp(x + rest) for x <= 0, or so little above it as rounding leaves: up to 70."""
    if t.scales and has_lookups(t) and rest is None:
        return _exponential_by_thirty_seconds(t, x)
    if t.scales or not has_short_lookups(t):
        return _lifted_exponential(t, x, rest)
    x, lift = t.at_least(x, RANGE[t.element][0]), LIFT[t.element]
    shifted, r = _shifted(t, x, rest, SHORT_ENTRIES)
    scale = t.of_bits(_power_of_eighths(t, shifted, lift))
    return t.multiply(t.polynomial(r, [c * 2.0**-lift for c in EXP_EIGHTH[0]]), scale)


def _exponential_by_thirty_seconds(t: Lanes, x: str) -> str:
    """exp(x) for the same x, where one instruction multiplies by a power of two.

    An x below -104 needs no limit.  Its r may be any number, of which clearing one bit leaves less
    than two; so the polynomial is finite and above zero, and the power of two makes zero of it.
    Where x is no number, n is none either, nor is what is multiplied by its power of two.
    """
    count, index, r = _in_parts(t, x, LONG_ENTRIES)
    r = t.of_bits(t.on_bits("and", t.bits(r), BELOW_TWO))
    power = looked_up(t, "long_powers_of_two", EXP_LONG_TABLE, index)[0]
    slope = t.polynomial(r, EXP_THIRTY_SECOND[t.element])
    return t.scaled(t.add(t.multiply(t.multiply(power, r), slope), power), count)


def _lifted_exponential(t: Lanes, x: str, rest: str | None) -> str:
    """The same with a polynomial of more terms and no table: where no one instruction multiplies by
    a power of two, that is lifted and the polynomial lowered."""
    x, lift = t.at_least(x, RANGE[t.element][0]), LIFT[t.element]
    if t.scales:
        return _scaled_exponential(t, x, rest)
    shifted, r = _shifted(t, x, rest)
    scale = t.on_bits("shl", shifted, t.mantissa)
    scale = t.of_bits(t.on_bits("add", scale, t.bits_of(2.0**lift)))
    return t.multiply(_power(t, r, 2.0**-lift), scale)


def _power_of_eighths(t: Lanes, shifted: str, lift: int) -> str:
    """The bits of 2^(n + lift) / f for n in eighths, f the factor that `EXP_EIGHTH` has.

    A table has those of 2^(k / 8) less k where it stands once n is shifted to the exponent, so that
    one sum is both.
    """
    places = t.mantissa - (SHORT_ENTRIES.bit_length() - 1)
    table = [
        t.float_with_bits(t.bits_of(x) - (k << places) + (lift << t.mantissa))
        for k, x in enumerate(EXP_EIGHTHS[0])
    ]
    fraction = looked_up(t, f"eighths_of_two_{lift}".replace("-", "minus_"), [table], shifted)[0]
    return t.on_bits("add", t.on_bits("shl", shifted, places), t.bits(fraction))


def exponential_of_sum(t: Lanes, x: str, rest: str | None) -> str:
    """exp(x + rest) for a small rest, which may carry bits that x has no place for."""
    low, high = RANGE[t.element]
    x = t.at_least(t.at_most(x, high), low)
    if t.scales:
        return _scaled_exponential(t, x, rest)
    shifted, r = _shifted(t, x, rest)
    # in two steps, since 2^n may lie outside the range in which exp(x) still does not
    half = t.on_bits("ashr", shifted, 1)
    steps = half, t.on_bits("sub", shifted, half)
    first, second = (t.power_of_two(n) for n in steps)
    return t.multiply(t.multiply(_power(t, r), first), second)


def exponential_in_range(t: Lanes, x: str, rest: str) -> str:
    """The same for an x of a few hundreds at most, which needs no limits where one instruction
    makes zero or infinity of what is out of range."""
    return _scaled_exponential(t, x, rest) if t.scales else exponential_of_sum(t, x, rest)


def _scaled_exponential(t: Lanes, x: str, rest: str | None) -> str:
    """exp(x + rest) where one instruction multiplies by a power of two."""
    if has_lookups(t):
        count, index, r = _in_parts(t, x, ENTRIES, rest)
        power = looked_up(t, "powers_of_two", EXP_TABLE[:1], index)[0]
        return t.scaled(t.add(_times_minus_one(t, power, r), power), count)
    count = t.rounded(t.multiply(x, t.number(LOG2_E)))
    r = _remainder(t, x, count, rest)
    return t.scaled(t.add(_minus_one(t, r), t.number(1)), count)


def _shifted(
    t: Lanes, x: str, rest: str | None, parts: int = 1, factor: int = 1
) -> tuple[str, str]:
    """Integers whose last bits are those of n, where a float has its fraction, and r / factor.

    n counts so many parts of one, a power of two.  The exponential is of x times a factor, plus or
    minus a power of two.
    """
    large = t.number(1.5 * 2.0**t.mantissa / parts)
    shifted = t.add(t.multiply(x, t.number(LOG2_E * factor)), large)
    count = t.f.op(f"fsub {t.type} {shifted}, {large}")
    return t.bits(shifted), _remainder(t, x, count, rest, factor)


def _power(t: Lanes, r: str, factor: float = 1.0) -> str:
    """exp(r) times a power of two, for |r| <= log(2) / 2."""
    return t.polynomial(r, [c * factor for c in (1.0, 1.0, *EXP[t.element])])


def _in_parts(t: Lanes, x: str, parts: int, rest: str | None = None) -> tuple[str, str, str]:
    """n, as a multiple of one over a power of two, integers whose low bits count these parts, and r
    of x + rest = n log(2) + r, |r| <= log(2) / 2 / parts."""
    large = 1.5 * 2.0**t.mantissa / parts
    shifted = t.fma(x, t.number(LOG2_E), t.number(large))
    count = t.f.op(f"fsub {t.type} {shifted}, {t.number(large)}")
    return count, t.bits(shifted), _remainder(t, x, count, rest)


def _times_minus_one(t: Lanes, power: str, r: str) -> str:
    """A power times exp(r) - 1, |r| <= log(2) / 32."""
    slope = t.multiply_add(t.polynomial(r, EXP_SIXTEENTH[t.element]), r, t.number(1))
    return t.multiply(t.multiply(power, r), slope)


def _exact_parts(t: Lanes, x: str) -> tuple[str, str]:
    """p and n of exp(x) = p 2^floor(n), |x| <= 104, p as near as a float can be but for a tenth of
    its last place."""
    count, index, r = _in_parts(t, x, ENTRIES)
    power, lacks = looked_up(t, "exact_powers_of_two", EXP_TABLE, index)
    apart = t.add(_times_minus_one(t, power, r), lacks)
    return t.f.op(f"fadd {t.type} {power}, {apart}"), count


def _reduced(t: Lanes, x: str, rest: str | None = None) -> tuple[str, str]:
    """r and the integer n of x + rest = n log(2) + r; n means nothing where x is no number."""
    count, n = t.nearest(t.multiply(x, t.number(LOG2_E)))
    return _remainder(t, x, count, rest), n


def _remainder(t: Lanes, x: str, count: str, rest: str | None, factor: int = 1) -> str:
    """x + rest - count log(2) / factor."""
    first, second = (part / factor for part in LOG_2[t.element])
    r = t.multiply_add(count, t.number(-first), x)
    if rest is None:
        return t.multiply_add(count, t.number(-second), r)
    return t.add(r, t.multiply_add(count, t.number(-second), rest))


def _minus_one(t: Lanes, r: str) -> str:
    """exp(r) - 1 for |r| <= log(2) / 2."""
    return t.multiply_add(t.multiply(r, r), t.polynomial(r, EXP[t.element]), r)


def exponential_minus_one(t: Lanes, x: str) -> str:
    """2^n (exp(r) - 1) + (2^n - 1), through half of it, since 2^n alone may be too large."""
    high = RANGE[t.element][1]
    r, n = _reduced(t, t.at_least(t.at_most(x, high), MINUS_ONE[t.element]))
    scale = t.power_of_two(t.on_bits("sub", n, 1))
    half = t.multiply_add(scale, _minus_one(t, r), t.subtract(scale, t.number(0.5)))
    return _unless_tiny(t, x, t.multiply(half, t.number(2)))


def _unless_tiny(t: Lanes, x: str, result: str) -> str:
    """x itself where the function is the identity.

    Keeps the sign of zero, and all bits of what lies below the normal range.
    """
    tiny = t.compare("lt", t.magnitude(x), t.number(2.0 ** (-t.mantissa - 3)))
    return t.select(tiny, x, result)


def one_and_tanh(t: Lanes, x: str) -> str:
    """1 + tanh(x) = 2 / (1 + exp(-2 x)) of floats where exponentials are by eighths.

    The power of two is lowered and the polynomial lifted, so that an exponential which is too large
    becomes infinite in their product, and the quotient zero.
    """
    x = t.at_least(t.at_most(x, RISEN[1]), RISEN[0])
    shifted, r = _shifted(t, x, None, SHORT_ENTRIES, factor=-2)
    lift = LIFT[t.element]
    scale = t.of_bits(_power_of_eighths(t, shifted, -lift))
    powers = (c * (-2.0) ** k * 2.0**lift for k, c in enumerate(EXP_EIGHTH[0]))
    e = t.multiply(t.polynomial(r, [*powers]), scale)
    return t.divide(t.number(2), t.add(e, t.number(1)))


def tanh(t: Lanes, x: str) -> str:
    """1 - 2 / (exp(2 x) + 1), and an odd polynomial where that loses places."""
    if has_lookups(t):
        return _tanh_by_table(t, x)
    size = t.at_most(t.magnitude(x), ONE[t.element])
    r, n = _reduced(t, t.add(size, size))
    scale = t.power_of_two(n)
    above = t.multiply_add(scale, _minus_one(t, r), t.add(scale, t.number(1)))
    far = t.subtract(t.number(1), t.divide(t.number(2), above))
    z = t.multiply(x, x)
    near = t.multiply_add(t.multiply(z, t.polynomial(z, TANH[t.element])), size, size)
    return t.with_sign(t.select(t.compare("lt", size, t.number(FAR)), near, far), x)


def _tanh_by_table(t: Lanes, x: str) -> str:
    """By a polynomial around a point of its own in each quarter of an octave of |x| + 1.

    The points are such that their values are floats as good as exactly; around 0, x is the first
    term.
    """
    size = t.at_most(t.magnitude(x), TANH_LIMIT)
    above = t.add(size, t.number(1))
    index = t.on_bits("lshr", t.bits(above), t.mantissa - 2)
    point, value, *slopes = looked_up(t, "tanh_quarters", TANH_TABLE, index)
    near = t.compare("lt", above, t.number(1.25))
    apart = t.subtract(size, point)
    total = slopes[-1]
    for c in reversed(slopes[:-1]):
        total = t.multiply_add(total, apart, c)
    found = t.multiply_add(total, apart, t.select(near, size, value))
    return t.with_sign(found, x)


def logistic(t: Lanes, x: str) -> str:
    """1 / (1 + exp(-x)), for negative x as exp(x) / (1 + exp(x)), which does not overflow.

    The quotient is off by what its own rounding and that of the sum lost, which is added.
    """
    if has_lookups(t) and t.scales:
        return _logistic_by_reciprocal(t, x)
    e = _lifted_exponential(t, t.negate(t.magnitude(x)), None)
    below = t.compare("lt", x, t.number(0))
    above = t.select(below, e, t.number(1))
    total = t.add(e, t.number(1))
    lost = t.subtract(e, t.subtract(total, t.number(1)))
    quotient = t.divide(above, total)
    rest = t.multiply(t.negate(quotient), lost)
    if t.fuses:
        rest = t.add(t.fma(t.negate(quotient), total, above), rest)
    inverse = t.select(below, t.subtract(t.number(1), quotient), quotient)
    return t.multiply_add(rest, inverse, quotient)


def _logistic_by_reciprocal(t: Lanes, x: str) -> str:
    """1 / (1 + exp(-x)), where an exponential above 2^64 is taken as that times what remains."""
    away = t.negate(t.at_least(t.at_most(x, -RANGE[t.element][0]), RANGE[t.element][0]))
    power, count = _exact_parts(t, away)
    e = t.scaled(power, t.at_most(count, FAR_POWER))
    inverse = t.reciprocal_of_sum(e, t.number(1))
    beyond = t.subtract(t.number(FAR_POWER + 1 - 1 / ENTRIES), t.at_least(count, FAR_POWER))
    return t.scaled(inverse, beyond)


# logarithms ---------------------------------------------------------------------------------------


def split(t: Lanes, x: str) -> tuple[str, str]:
    """The integer e and m of a positive x = 2^e m with m between sqrt(1/2) and sqrt(2)."""
    few = t.compare("lt", x, t.number(t.smallest))
    lift = t.mantissa + 2
    x = t.select(few, t.multiply(x, t.number(2.0**lift)), x)
    e, m = _split_normal(t, x)
    return t.select_bits(few, t.on_bits("sub", e, lift), e), m


def _split_normal(t: Lanes, x: str) -> tuple[str, str]:
    base = t.bits_of(SQRT_HALF)
    above = t.on_bits("sub", t.bits(x), base)
    fraction = t.on_bits("and", above, (1 << t.mantissa) - 1)
    return t.on_bits("ashr", above, t.mantissa), t.of_bits(t.on_bits("add", fraction, base))


def log(t: Lanes, x: str) -> str:
    e, m = split(t, x)
    return log_at_edges(t, x, _log_of(t, e, t.subtract(m, t.number(1))))


def _log_of(t: Lanes, e: str, f: str) -> str:
    """log(2^e (1 + f)).

    With s = f / (2 + f) it is e log(2) + f - (f^2 / 2 - s (f^2 / 2 + s^2 LOG(s^2))).
    """
    count = t.float_of(e)
    first, second = LOG_2[t.element]
    s = t.divide(f, t.add(f, t.number(2)))
    z = t.multiply(s, s)
    half = t.multiply(t.multiply(f, t.number(0.5)), f)
    inner = t.multiply_add(t.polynomial(z, LOG[t.element]), z, half)
    small = t.multiply_add(s, inner, t.multiply(count, t.number(second)))
    result = t.subtract(f, t.subtract(half, small))
    return t.multiply_add(count, t.number(first), result)


def log_at_edges(t: Lanes, x: str, result: str) -> str:
    """The logarithm of x, where 0 < x < infinity has been dealt with."""
    result = t.select(t.compare("lt", x, t.number(float("inf"))), result, x)
    result = t.select(t.compare("eq", x, t.number(0)), t.number(float("-inf")), result)
    return t.select(t.compare("lt", x, t.number(0)), t.number(float("nan")), result)


def log_plus_one(t: Lanes, x: str) -> str:
    """What 1 + x loses to rounding is added to the fraction."""
    u, lost = t.exact_sum(t.number(1), x)
    e, m = _split_normal(t, u)
    # 2^-e; from 2^60 on the loss does not matter
    low = t.select_bits(t.bits_are("slt", e, 60), e, t.integer(60))
    scale = t.power_of_two(t.on_bits("sub", t.integer(0), low))
    f = t.multiply_add(lost, scale, t.subtract(m, t.number(1)))
    result = _unless_tiny(t, x, _log_of(t, e, f))
    result = t.select(t.compare("lt", x, t.number(float("inf"))), result, x)
    result = t.select(t.compare("eq", x, t.number(-1)), t.number(float("-inf")), result)
    return t.select(t.compare("lt", x, t.number(-1)), t.number(float("nan")), result)

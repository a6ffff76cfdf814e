"""Roots and powers."""

from collections.abc import Callable

from hlotune.codegen.llvm.math.exponentials import (
    LOG_2,
    exponential_of_sum,
    log,
    log_at_edges,
    split,
)
from hlotune.codegen.llvm.math.polynomials import CBRT, LOG_TAIL
from hlotune.codegen.llvm.math.vector_builder import Lanes

MOST_HALVES = 8
"""Halves of the largest exponent that powers are products for."""
TWO_THIRDS = (2 / 3, 3.700743415417188e-17)
"""2/3 and what its rounding loses."""


def reciprocal_square_root(t: Lanes, x: str) -> str:
    return t.divide(t.number(1), t.square_root(x))


def cube_root(t: Lanes, x: str) -> str:
    """Takes the root of m = |x| / 8^q by a polynomial, then by Halley's steps for more digits."""
    size = t.magnitude(x)
    e, m = split(t, size)
    count = t.float_of(e)
    _, q = t.nearest(t.multiply(count, t.number(1 / 3)))
    thrice = t.on_bits("add", t.on_bits("add", q, q), q)
    m = t.times_power_of_two(m, t.on_bits("sub", e, thrice))
    root = t.polynomial(m, CBRT[t.element])
    for _ in range(1 if t.element == "float" else 2):
        root = _halley(t, root, m)
    root = t.with_sign(t.times_power_of_two(root, q), x)
    real = t.both(t.compare("lt", size, t.number(float("inf"))), t.compare("gt", size, t.number(0)))
    return t.select(real, root, x)


def _halley(t: Lanes, root: str, m: str) -> str:
    cube = t.multiply(t.multiply(root, root), root)
    step = t.divide(t.subtract(m, cube), t.add(t.add(cube, cube), m))
    return t.multiply_add(root, step, root)


def known_power(t: Lanes, x: str, exponent: float) -> str | None:
    """x^exponent by products of x, of its root, or of what is one by these; None where they are
    many, or the exponent is no half of a whole number.

    Nothing on the way is beyond the range of floats where the result is not.
    """
    halves = abs(2 * exponent)
    if not 1 <= halves <= MOST_HALVES or halves != int(halves):
        return None
    whole = halves % 2 == 0
    base = x if whole else t.square_root(t.magnitude(x))
    base = t.divide(t.number(1), base) if exponent < 0 else base
    result = _times_itself(t, base, int(halves) // 2 if whole else int(halves))
    if whole:
        return result
    real = t.both(t.compare("lt", x, t.number(0)), t.compare("gt", x, t.number(float("-inf"))))
    return t.select(real, t.number(float("nan")), result)


def _times_itself(t: Lanes, x: str, count: int) -> str:
    """x multiplied with itself, so many factors in all."""
    if count == 1:
        return x
    half = _times_itself(t, x, count // 2)
    square = t.multiply(half, half)
    return t.multiply(square, x) if count % 2 else square


def power(t: Lanes, x: str, y: str) -> str:
    """x^y as the C library has it: x^0 and 1^y are 1, also where the other is no number."""
    if t.element == "double":
        return _power(t, x, y, _log_in_two)
    wide = Lanes(t.f, "double", t.lanes)
    x, y = (t.f.op(f"fpext {t.type} {v} to {wide.type}") for v in (x, y))
    result = _power(wide, x, y, lambda t, size: (log(t, size), None))
    return t.f.op(f"fptrunc {wide.type} {result} to {t.type}")


def _power(t: Lanes, x: str, y: str, log_of: Callable[[Lanes, str], tuple[str, str | None]]) -> str:
    """exp(y log |x|), and the sign or what else negative x give."""
    size = t.magnitude(x)
    high, low = log_of(t, size)
    result = _exponential_of_product(t, y, high, low)
    whole, odd = _is_whole(t, y), t.opposite(_is_whole(t, t.multiply(y, t.number(0.5))))
    flipped = t.select(t.both(whole, odd), t.with_sign(result, x), result)
    real = t.both(t.compare("lt", x, t.number(0)), t.compare("gt", x, t.number(float("-inf"))))
    none = t.both(real, t.opposite(whole))
    result = t.select(none, t.number(float("nan")), flipped)
    one = t.either(t.compare("eq", x, t.number(1)), t.compare("eq", y, t.number(0)))
    return t.select(one, t.number(1), result)


def _exponential_of_product(t: Lanes, y: str, high: str, low: str | None) -> str:
    """exp(y * (high + low)); 1 where the logarithm is 0, also for infinite y."""
    product, rest = t.multiply(y, high), None
    if low is not None:
        product, rest = t.exact_product(y, high)
        rest = t.multiply_add(y, low, rest)
        # of infinities there is no rest
        inside = t.compare("lt", t.magnitude(product), t.number(2000.0))
        rest = t.select(inside, rest, t.number(0))
    product = t.select(t.compare("eq", high, t.number(0)), t.number(0), product)
    return exponential_of_sum(t, product, rest)


def _is_whole(t: Lanes, y: str) -> str:
    """Whether a finite or infinite number has no fraction."""
    size, limit = t.magnitude(y), t.number(2.0**t.mantissa)
    shifted = t.add(size, limit)
    same = t.compare("eq", t.subtract(shifted, limit), size)
    return t.either(same, t.compare("ge", size, limit))


def _log_in_two(t: Lanes, x: str) -> tuple[str, str]:
    """log(x) to 64 bits as a sum of two numbers, since y multiplies its error.

    With x = 2^e (1 + f) and s = f / (2 + f) it is e log(2) + 2 s + 2/3 s^3 + s^5 LOG_TAIL(s^2),
    where all but the last term are such sums.
    """
    e, m = split(t, x)
    s, s_rest = _quotient(t, t.subtract(m, t.number(1)))
    z, z_rest = t.exact_product(s, s)
    z_rest = t.multiply_add(t.add(s, s), s_rest, z_rest)
    cube, cube_rest = _product(t, (z, z_rest), (s, s_rest))
    third, third_rest = _product(
        t, (cube, cube_rest), (t.number(TWO_THIRDS[0]), t.number(TWO_THIRDS[1]))
    )
    tail = t.multiply(t.multiply(cube, z), t.polynomial(z, LOG_TAIL[t.element]))
    count = t.float_of(e)
    first, second = LOG_2[t.element]
    total, lost = t.exact_sum(t.multiply(count, t.number(first)), t.add(s, s))
    total, lost_too = t.exact_sum(total, third)
    small = t.multiply_add(count, t.number(second), t.add(tail, third_rest))
    small = t.add(small, t.multiply_add(s_rest, t.number(2), t.add(lost, lost_too)))
    high, low = t.exact_sum(total, small)
    return log_at_edges(t, x, high), low


def _quotient(t: Lanes, f: str) -> tuple[str, str]:
    """f / (2 + f) in two."""
    below, below_rest = t.exact_sum(t.number(2), f)
    s = t.divide(f, below)
    left = t.fma(t.negate(s), below, f)
    left = t.multiply_add(t.negate(s), below_rest, left)
    return s, t.divide(left, below)


def _product(t: Lanes, a: tuple[str, str], b: tuple[str, str]) -> tuple[str, str]:
    high, low = t.exact_product(a[0], b[0])
    low = t.multiply_add(a[0], b[1], low)
    return high, t.multiply_add(a[1], b[0], low)

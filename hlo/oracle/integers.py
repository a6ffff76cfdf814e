"""Elementwise operations on integers and i1: exact, wrapping, and never trapping."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hlotune.hlo.oracle.bounded import Bounded, Values
from hlotune.schedules.ir.operations import OPERATIONS

Function = Callable[..., Values]


def divide(a: Values, b: Values) -> Values:
    """Rounds towards zero; x / 0 has all bits set, and the least value over -1 is itself."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
        quotient = np.where(b == -1, -a, quotient)
    return np.where(b == 0, ~b.dtype.type(0), quotient).astype(a.dtype)


def remainder(a: Values, b: Values) -> Values:
    """Has the sign of the dividend; x % 0 is x."""
    quotient = np.where(b == 0, b.dtype.type(0), divide(a, b))
    rest: Values = (a - quotient * b).astype(a.dtype)
    return rest


def power(a: Values, b: Values) -> Values:
    """By squaring, wrapping around; negative exponents leave what integers can say of 1 / a**n."""
    result, base, exponent = np.ones_like(a * b), a + 0 * b, np.where(b < 0, b.dtype.type(0), b)
    while exponent.any():
        result = np.where(exponent & 1, result * base, result)
        base, exponent = base * base, exponent >> 1
    odd = np.where(b & 1, -1, 1).astype(a.dtype) if a.dtype.kind == "i" else np.ones_like(result)
    inverse = np.where(a == 1, 1, np.where(a == -1, odd, 0)) if a.dtype.kind == "i" else result
    return np.where(b < 0, inverse, result).astype(a.dtype)


def _bits(a: Values) -> int:
    return 1 if a.dtype == np.bool_ else a.dtype.itemsize * 8


def _unsigned(a: Values) -> Values:
    return np.array(a, order="C").view(f"u{a.dtype.itemsize}")


def _signed(a: Values) -> Values:
    return np.array(a, order="C").view(f"i{a.dtype.itemsize}")


def _shift(shift: Function, overflow: Function) -> Function:
    def rule(a: Values, b: Values) -> Values:
        over = (b < 0) | (b >= _bits(a))
        return np.where(over, overflow(a), shift(a, np.where(over, b.dtype.type(0), b))).astype(
            a.dtype
        )

    return rule


def _right_logical(a: Values, b: Values) -> Values:
    return (_unsigned(a) >> _unsigned(b)).view(a.dtype)


def _right_arithmetic(a: Values, b: Values) -> Values:
    shifted: Values = _signed(a) >> _signed(b)
    return shifted.view(a.dtype)


def _signs(a: Values) -> Values:
    return np.where(_signed(a) < 0, -1, 0).astype(a.dtype)


def _zero(a: Values) -> Values:
    return np.zeros_like(a)


def popcnt(a: Values) -> Values:
    return np.bitwise_count(_unsigned(a)).astype(a.dtype)


def count_leading_zeros(a: Values) -> Values:
    rest, count = _unsigned(a).copy(), np.full(a.shape, _bits(a))
    while rest.any():
        count, rest = count - (rest != 0), rest >> 1
    return count.astype(a.dtype)


def negate(a: Values) -> Values:
    return (-a).astype(a.dtype)


def clamp(low: Values, x: Values, high: Values) -> Values:
    return np.minimum(np.maximum(x, low), high)


def is_finite(a: Values) -> Values:
    return np.ones(a.shape, np.bool_)


RULES: dict[str, Function] = {
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "clamp": clamp,
    "negate": negate,
    "popcnt": popcnt,
    "count_leading_zeros": count_leading_zeros,
    "shift_left": _shift(np.left_shift, _zero),
    "shift_right_logical": _shift(_right_logical, _zero),
    "shift_right_arithmetic": _shift(_right_arithmetic, _signs),
}
"""Operations that NumPy does not define as StableHLO does."""
INTEGERS: dict[str, Function] = RULES | {
    row.name: row.whole for row in OPERATIONS.values() if row.whole
}
LOGIC: dict[str, Function] = INTEGERS | {
    row.name: row.truths for row in OPERATIONS.values() if row.truths
}
"""i1: XLA adds and multiplies predicates as or and and."""


def apply(name: str, operands: tuple[Bounded, ...], dtype: str) -> Bounded:
    """Unknown where any operand is."""
    table = LOGIC if dtype == "i1" else INTEGERS
    values: list[Any] = [x.value for x in operands]
    bound = operands[0].bound
    for x in operands[1:]:
        bound = bound + x.bound
    value = table[name](*values)
    return Bounded(value, np.broadcast_to(bound, value.shape), dtype)

"""Elementwise operations on floats: the result, and what the operands' errors make of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hlotune.hlo.oracle import special
from hlotune.hlo.oracle.bounded import (
    UNKNOWN,
    Bounded,
    Float,
    Values,
    exact,
    rounded,
    scaled,
    settle,
)
from hlotune.schedules.ir.operations import OPERATIONS, Error, Operation

Function = Callable[..., Any]
Rule = Callable[..., Bounded]


def add(a: Bounded, b: Bounded) -> Bounded:
    left = _left_of_sum(a.value, b.value) if a.dtype == "f64" else 0.0
    return settle(a.value + b.value, a.bound + b.bound, a.dtype, residual=left, nearest=True)


def subtract(a: Bounded, b: Bounded) -> Bounded:
    left = _left_of_sum(a.value, -b.value) if a.dtype == "f64" else 0.0
    return settle(a.value - b.value, a.bound + b.bound, a.dtype, residual=left, nearest=True)


def multiply(a: Bounded, b: Bounded) -> Bounded:
    error = scaled(a.bound, b.value) + scaled(b.bound, np.abs(a.value) + a.bound)
    left = _left_of_product(a.value, b.value) if a.dtype == "f64" else 0.0
    return settle(a.value * b.value, error, a.dtype, residual=left)


def _left_of_sum(a: Values, b: Values) -> Values:
    """What a sum in f64 leaves of the exact one (Knuth's two-sum); no number where it overflows."""
    total = a + b
    other = total - a
    return np.asarray((a - (total - other)) + (b - other))


def _left_of_product(a: Values, b: Values) -> Values:
    """What a product in f64 leaves of the exact one (Dekker's).

    It is no number where halves overflow, and one where parts of the product would underflow.
    """
    product = a * b
    (high, low), (other_high, other_low) = _halves(a), _halves(b)
    left = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    is_tiny = (np.abs(product) < 2.0**-900) & (a != 0) & (b != 0)
    return np.where(is_tiny, 1.0, left)


def _halves(x: Values) -> tuple[Values, Values]:
    """The upper 26 bits of f64 values, and what is left of them."""
    scaled_up = x * (2.0**27 + 1)
    high = scaled_up - (scaled_up - x)
    return high, x - high


def divide(a: Bounded, b: Bounded) -> Bounded:
    """Faithful only for powers of two: compilers multiply by the reciprocal of a constant."""
    quotient = a.value / b.value
    room = np.abs(b.value) - b.bound
    error = np.where(room > 0, (a.bound + scaled(b.bound, quotient)) / room, UNKNOWN)
    error = np.where((a.bound == 0) & (b.bound == 0), 0.0, error)
    powers = bool((np.abs(np.frexp(b.value)[0]) == 0.5).all())
    return settle(quotient, error, a.dtype, 1.0 if powers else 2.0, faithful=powers)


def remainder(a: Bounded, b: Bounded) -> Bounded:
    """Jumps where the quotient is near an integer."""
    quotient = divide(a, b)
    jumps = np.trunc(quotient.value - quotient.bound) != np.trunc(quotient.value + quotient.bound)
    inexact = (a.bound > 0) | (b.bound > 0)
    error = a.bound + scaled(b.bound, np.trunc(quotient.value))
    error = np.where(inexact & jumps, UNKNOWN, error)
    return settle(np.fmod(a.value, b.value), error, a.dtype)


def ends(function: Function, *operands: Bounded) -> Float:
    """How far a function moves when each operand in turn goes to either end of its interval.

    To first order the derivative times the bound, and right for steep and curved functions too.
    """
    centres = [x.value for x in operands]
    middle = function(*centres)
    total: Float = np.zeros(np.shape(middle))
    for i, x in enumerate(operands):
        if x.is_exact:
            continue
        moved = [
            np.abs(function(*centres[:i], centres[i] + side * x.bound, *centres[i + 1 :]) - middle)
            for side in (-1, 1)
        ]
        total = total + np.where(x.bound == 0, 0.0, np.maximum(*moved))
    return total


def smooth(
    function: Function, ulps: float, *, absolute: float = 0.0, faithful: bool = False
) -> Rule:
    """A function that right kernels give to `ulps` of its result plus `absolute` of 1, in eps."""

    def rule(x: Bounded) -> Bounded:
        value, error = function(x.value), ends(function, x)
        if absolute:
            error = error + absolute * rounded_eps(x.dtype)
        return settle(value, error, x.dtype, ulps, faithful=faithful)

    return rule


def rounded_eps(dtype: str) -> float:
    """eps in which transcendental functions are computed: narrow types go by way of f32."""
    return 2.0**-51 if dtype == "f64" else 2.0**-23


def wave(function: Function) -> Rule:
    """Sine and cosine: of slope at most 1; reducing the argument has an error of its own."""

    def rule(x: Bounded) -> Bounded:
        reduction = rounded_eps(x.dtype) * np.minimum(np.abs(x.value) / 8, 1.0)
        return settle(
            function(x.value), np.minimum(x.bound, 2.0) + reduction, x.dtype, 2.0, faithful=False
        )

    return rule


def step(function: Function) -> Rule:
    """A function of plateaus: unknown where the operand's interval reaches two of them."""

    def rule(x: Bounded) -> Bounded:
        value = function(x.value)
        low, high = function(x.value - x.bound), function(x.value + x.bound)
        error = np.where((x.bound > 0) & ((low != value) | (high != value)), UNKNOWN, 0.0)
        return settle(value, error, x.dtype)

    return rule


def power(a: Bounded, b: Bounded) -> Bounded:
    value = np.power(a.value, b.value)
    exponent = np.abs(b.value * np.log(np.abs(a.value)))
    own = rounded_eps(a.dtype) * np.where(np.isfinite(exponent), exponent, 0.0) * np.abs(value)
    error = ends(np.power, a, b) + np.where(np.isfinite(own), own, 0.0)
    return settle(value, error, a.dtype, 2.0, faithful=False)


def erfc(x: Bounded) -> Bounded:
    """Kernels round x * x before they take its exponential."""
    value = special.erfc(x.value)
    square = np.minimum(np.square(np.maximum(x.value, 0.0)), 1e3)
    error = ends(special.erfc, x) + rounded_eps(x.dtype) * square * value
    return settle(value, error, x.dtype, 8.0, faithful=False)


def atan2(a: Bounded, b: Bounded) -> Bounded:
    return settle(
        np.arctan2(a.value, b.value), ends(np.arctan2, a, b), a.dtype, 4.0, faithful=False
    )


def extreme(function: Function) -> Rule:
    """Maximum and minimum: the interval of the result is that of the winners."""

    def rule(a: Bounded, b: Bounded) -> Bounded:
        value = function(a.value, b.value)
        high = function(a.value + a.bound, b.value + b.bound)
        low = function(a.value - a.bound, b.value - b.bound)
        error = np.maximum(high - value, value - low)
        error = np.where((a.bound == 0) & (b.bound == 0), 0.0, error)
        return Bounded(value, np.where(np.isnan(error), UNKNOWN, error), a.dtype)

    return rule


def clamp(low: Bounded, x: Bounded, high: Bounded) -> Bounded:
    return extreme(np.minimum)(extreme(np.maximum)(x, low), high)


def moved(function: Function) -> Rule:
    """Negation and absolute value: no rounding."""

    def rule(x: Bounded) -> Bounded:
        return Bounded(function(x.value), x.bound, x.dtype)

    return rule


def is_finite(x: Bounded) -> Bounded:
    result = np.isfinite(x.value)
    return Bounded(result, np.where(np.isinf(x.bound), UNKNOWN, 0.0), "i1")


def compare(relation: Function, a: Bounded, b: Bounded) -> Bounded:
    """Unknown where the operands are nearer to each other than their errors."""
    result = relation(a.value, b.value)
    if a.is_exact and b.is_exact:
        return exact(result, "i1")
    error = a.bound + b.bound
    near = (error > 0) & ~(np.abs(a.value - b.value) > error)
    return Bounded(result, np.where(near, UNKNOWN, 0.0), "i1")


def reduce_precision(x: Bounded, exponent_bits: int, mantissa_bits: int) -> Bounded:
    """Formats other than those of our types are rounded in the mantissa alone."""
    formats = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32", (11, 52): "f64"}
    named = formats.get((exponent_bits, mantissa_bits))
    if named is not None:
        held = rounded(x.value, named)
    else:
        mantissa, exponent = np.frexp(x.value)
        grid = 2.0 ** (mantissa_bits + 1)
        held = np.ldexp(np.rint(mantissa * grid) / grid, exponent)
    eps = 2.0**-mantissa_bits
    inexact = (x.bound > 0) | (held != x.value)
    error = np.where(inexact & np.isfinite(held), x.bound + eps * np.abs(held), x.bound)
    return Bounded(held, error, x.dtype)


RULES: dict[str, Rule] = {
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": divide,
    "remainder": remainder,
    "power": power,
    "atan2": atan2,
    "clamp": clamp,
    "is_finite": is_finite,
    "erfc": erfc,
}
"""How errors pass through operations that have a rule of their own."""


def _rule(row: Operation, error: Error) -> Rule:
    function: Function = row.numpy or getattr(special, row.name)
    if error.kind == "smooth":
        return smooth(function, error.ulps, absolute=error.absolute, faithful=error.faithful)
    ways = {"exact": moved, "step": step, "extreme": extreme, "wave": wave}
    return ways[error.kind](function)


FLOATS: dict[str, Rule] = RULES | {
    row.name: _rule(row, row.error) for row in OPERATIONS.values() if row.error
}

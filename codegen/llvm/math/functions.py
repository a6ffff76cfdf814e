"""Transcendental functions as straight lines of instructions, on one lane or many.

Largest errors over all arguments, in units of the last place of the exact result
(tests/codegen/test_functions.py):

    function                f32   f64
    exponential             1.2   1.2
    exponential_minus_one   2     2
    log                     1     1
    log_plus_one            1.5   1.5
    tanh                    1.4   1.5
    logistic                2     2
    erf                     1.8   1.5
    erfc                    4.8   4
    rsqrt                   1.6   1.6
    cbrt                    1.1   1.1
    power                   0.6   1.5
    atan2                   2     2
    sine, cosine            0.6   0.8
    tan                     0.6   2.5

Exponentials of f32 that are at most one are off by up to 1.41 units where AVX2 has them by eighths,
and sums of one and a hyperbolic tangent by up to 2.4 (`idioms/risen_tangents.py`).

Powers of exponents up to 4 that are known, whole or half of a whole number, are products, and have
errors of up to 1.5 units for each half.  Remainders are exact.  bf16 and f16 are computed as f32
and rounded once more.  Infinities, zeros with their signs and numbers below the normal range are
results like any other.
"""

from collections.abc import Callable

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.arc_tangents import angle
from hlotune.codegen.llvm.math.error_function import erf, erfc
from hlotune.codegen.llvm.math.exponentials import (
    exponential,
    exponential_at_most_one,
    exponential_minus_one,
    log,
    log_plus_one,
    logistic,
    tanh,
)
from hlotune.codegen.llvm.math.powers import (
    cube_root,
    known_power,
    power,
    reciprocal_square_root,
)
from hlotune.codegen.llvm.math.remainders import remainder
from hlotune.codegen.llvm.math.trigonometric import cosine, sine, tangent
from hlotune.codegen.llvm.math.values import HELD, Value
from hlotune.codegen.llvm.math.vector_builder import Lanes
from hlotune.schedules.errors import UnsupportedKernel

UNARY: dict[str, Callable[[Lanes, str], str]] = {
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "log": log,
    "log_plus_one": log_plus_one,
    "tanh": tanh,
    "logistic": logistic,
    "erf": erf,
    "erfc": erfc,
    "rsqrt": reciprocal_square_root,
    "cbrt": cube_root,
    "sine": sine,
    "cosine": cosine,
    "tan": tangent,
}
BINARY: dict[str, Callable[[Lanes, str, str], str]] = {
    "power": power,
    "atan2": angle,
    "remainder": remainder,
}


def function(f: Function, op: str, args: tuple[Value, ...], dtype: str) -> Value:
    """A function of floats, of equal lanes.  Raises UnsupportedKernel for one that has no code."""
    t = Lanes(f, HELD[args[0].dtype], args[0].lanes)
    if op == "power" and args[1].known is not None:
        found = known_power(t, args[0].name, float(args[1].known))
        if found is not None:
            return Value(found, dtype, t.lanes)
    if op == "exponential" and f.at_most_one:
        return Value(exponential_at_most_one(t, args[0].name), dtype, t.lanes)
    if op in BINARY:
        return Value(BINARY[op](t, args[0].name, args[1].name), dtype, t.lanes)
    if op not in UNARY:
        raise UnsupportedKernel(
            f"no code for {op} on {args[0].dtype} yet: the kernel stays with the default compiler"
        )
    return Value(UNARY[op](t, args[0].name), dtype, t.lanes)

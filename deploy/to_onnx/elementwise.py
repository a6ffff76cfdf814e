"""Elementwise operations, constants among them; ONNX broadcasts their operands."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from hlotune.deploy.to_onnx.writer import Rule, Tensor, Writer, number, refused
from hlotune.hlo.graph import Literal, Op, numpy_dtype
from hlotune.schedules.dtypes import BYTES, is_float

CARRIERS = {"i8": "i32", "ui8": "i32", "i16": "i32", "ui16": "i32", "ui32": "i64", "ui64": "i64"}
"""Types without arithmetic in runtimes, each with the wider type that computes in its place;
casting the result back wraps it."""
WRAPS = ("add", "subtract", "multiply", "negate")
"""Operations whose lowest bits are right whatever the highest bits mean."""

ONE_NODE = {
    "abs": "Abs", "negate": "Neg", "exponential": "Exp", "log": "Log", "tanh": "Tanh",
    "logistic": "Sigmoid", "sqrt": "Sqrt", "sine": "Sin", "cosine": "Cos", "tan": "Tan",
    "floor": "Floor", "ceil": "Ceil", "round_nearest_even": "Round", "sign": "Sign", "erf": "Erf",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh",
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow",
    "maximum": "Max", "minimum": "Min",
}  # fmt: skip
"""Operations that one operator of ONNX computes, with that operator."""
OF_TRUTHS = {
    "add": "Or", "maximum": "Or", "or": "Or", "multiply": "And", "minimum": "And", "and": "And",
    "xor": "Xor", "not": "Not",
}  # fmt: skip
OF_BITS = {"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor", "not": "BitwiseNot"}
ERFC_IS_ZERO = 30.0
"""From here on erfc is below the smallest number of f64."""
ERFC_MIDDLE = (
    (
        2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687,
        4.86371970985681366614e1, 1.96520832956077098242e2, 5.26445194995477358631e2,
        9.34528527171957607540e2, 1.02755188689515710272e3, 5.57535335369399327526e2,
    ),
    (
        1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2,
        9.75708501743205489753e2, 1.82390916687909736289e3, 2.24633760818710981792e3,
        1.65666309194161350182e3, 5.57535340817727675546e2,
    ),
)  # fmt: skip
"""Coefficients of numerator and denominator of exp(x^2) erfc(x) for x from 1 to 8."""
ERFC_FAR = (
    (
        5.64189583547755073984e-1, 1.27536670759978104416, 5.01905042251180477414,
        6.16021097993053585195, 7.40974269950448939160, 2.97886665372100240670,
    ),
    (
        1.0, 2.26052863220117276590, 9.39603524938001434673, 1.20489539808096656605e1,
        1.70814450747565897222e1, 9.60896809063285878198, 3.36907645100081516050,
    ),
)  # fmt: skip
"""The same from 8 on."""
COMPARISONS = {"LT": "Less", "LE": "LessOrEqual", "GT": "Greater", "GE": "GreaterOrEqual"}


def short_name(op: Op) -> str:
    return op.name.partition(".")[2]


def operands(w: Writer, op: Op) -> list[Tensor]:
    return [w.short(v) for v in op.operands]


def carrier(dtype: str) -> str:
    return CARRIERS.get(dtype, dtype)


def arithmetic(w: Writer, op: Op) -> list[Tensor]:
    name, given = short_name(op), operands(w, op)
    dtype = given[0].dtype
    if dtype == "i1":
        return [truths(w, op)]
    if dtype == "ui64" and name not in WRAPS:
        raise refused(op, "another type than 64 bits without a sign", dtype)
    return [combined(w, name, given)]


def combined(w: Writer, name: str, given: list[Tensor]) -> Tensor:
    """The operation `name` of `ONE_NODE`, computed in a type that runtimes have, and cast back."""
    dtype = given[0].dtype
    if dtype == "i1":
        return w.of(OF_TRUTHS[name], *given)
    return w.cast(w.of(ONE_NODE[name], *(w.cast(x, carrier(dtype)) for x in given)), dtype)


def truths(w: Writer, op: Op) -> Tensor:
    if short_name(op) not in OF_TRUTHS:
        raise refused(op, "numbers", "i1")
    return w.of(OF_TRUTHS[short_name(op)], *operands(w, op))


def bits(w: Writer, op: Op) -> list[Tensor]:
    given = operands(w, op)
    if given[0].dtype == "i1":
        return [truths(w, op)]
    return [w.of(OF_BITS[short_name(op)], *given)]


def shift(w: Writer, op: Op) -> list[Tensor]:
    """Writes a shift; by the width of the type or more, no bit of the operand is left."""
    if short_name(op) == "shift_right_arithmetic":
        return [_shifted_with_sign(w, op)]
    x, by = operands(w, op)
    return [_shifted(w, op, x, by, "LEFT" if short_name(op) == "shift_left" else "RIGHT")]


def _shifted_with_sign(w: Writer, op: Op) -> Tensor:
    """What comes in are copies of the highest bit, of numbers without a sign too."""
    x, by = operands(w, op)
    signed = w.cast(x, x.dtype.removeprefix("u"))
    negative = w.of(
        "Less",
        w.cast(signed, carrier(signed.dtype)),
        w.constant(0, carrier(signed.dtype)),
        dtype="i1",
    )
    moved = _shifted(w, op, chosen(w, negative, w.of("BitwiseNot", x), x), by, "RIGHT")
    return chosen(w, negative, w.of("BitwiseNot", moved), moved)


def _shifted(w: Writer, op: Op, x: Tensor, by: Tensor, direction: str) -> Tensor:
    width = 8 * BYTES[x.dtype]
    plain = "ui64" if width > 32 else "ui32"
    narrow = {8: "ui8", 16: "ui16", 32: "ui32", 64: "ui64"}[width]
    wide = [w.cast(w.cast(v, narrow), plain) for v in (x, by)]
    known = w.literal(op.operands[1])
    if known is None or (known >= width).any():
        stays = w.of("Less", w.cast(by, "i64"), w.constant(width, "i64"), dtype="i1")
        zero = w.constant(0, plain)
        wide = [chosen(w, stays, v, zero) for v in wide]
    moved = w.of("BitShift", *wide, direction=direction)
    return w.cast(w.cast(moved, narrow), x.dtype)


def remainder(w: Writer, op: Op) -> list[Tensor]:
    """Writes the remainder, which has the sign of the dividend, as in C."""
    x, y = operands(w, op)
    if x.dtype == "ui64":
        raise refused(op, "another type than 64 bits without a sign", x.dtype)
    given = [w.cast(v, carrier(x.dtype)) for v in (x, y)]
    return [w.cast(w.of("Mod", *given, fmod=1), x.dtype)]


def compare(w: Writer, op: Op) -> list[Tensor]:
    given, direction = operands(w, op), str(op["comparison_direction"])
    dtype = given[0].dtype
    if dtype == "ui64" and direction not in ("EQ", "NE"):
        raise refused(op, "another type than 64 bits without a sign", dtype)
    compared = "i32" if dtype == "i1" else carrier(dtype)
    given = [w.cast(x, compared) for x in given]
    if direction in COMPARISONS:
        return [w.of(COMPARISONS[direction], *given, dtype="i1")]
    equal = w.of("Equal", *given, dtype="i1")
    return [equal if direction == "EQ" else w.of("Not", equal)]


def select(w: Writer, op: Op) -> list[Tensor]:
    return [chosen(w, *operands(w, op))]


def chosen(w: Writer, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """The elements of `yes` where the condition holds, else of `no`; a scalar one is broadcast."""
    rank = max(len(yes.shape), len(no.shape))
    if not condition.shape:
        condition = w.reshape(condition, (1,) * rank)
    dtype = yes.dtype
    through = "i32" if dtype == "i1" else carrier(dtype)
    picked = w.node(
        "Where", [condition, w.cast(yes, through), w.cast(no, through)], through,
        np.broadcast_shapes(condition.shape, yes.shape, no.shape),
    )  # fmt: skip
    return w.cast(picked, dtype)


def clamp(w: Writer, op: Op) -> list[Tensor]:
    low, x, high = operands(w, op)
    return [combined(w, "minimum", [combined(w, "maximum", [x, low]), high])]


def convert(w: Writer, op: Op) -> list[Tensor]:
    x, dtype = w.short(op.operands[0]), w.type(op.results[0]).dtype
    is_rounded = is_float(x.dtype) and not is_float(dtype) and dtype != "i1"
    return [_saturated(w, x, dtype) if is_rounded else w.cast(x, dtype)]


def _saturated(w: Writer, x: Tensor, dtype: str) -> Tensor:
    """Floats as integers in the way of XLA: NaN is 0, and what is out of range is the nearest
    integer of the type.  The largest one may lie between two floats."""
    x = x if x.dtype == "f64" else w.cast(x, "f32")
    limits: Any = np.iinfo(str(numpy_dtype(dtype)))
    low, beyond = (numpy_dtype(x.dtype).type(n) for n in (limits.min, limits.max))
    high = beyond if int(beyond) == limits.max else np.nextafter(beyond, low)
    x = chosen(w, w.of("IsNaN", x, dtype="i1"), w.constant(0, x.dtype), x)
    within = w.of("Min", w.of("Max", x, w.constant(low, x.dtype)), w.constant(high, x.dtype))
    rounded = w.cast(within, dtype)
    if high == beyond:
        return rounded
    is_beyond = w.of("GreaterOrEqual", x, w.constant(beyond, x.dtype), dtype="i1")
    return chosen(w, is_beyond, w.constant(limits.max, dtype), rounded)


def is_finite(w: Writer, op: Op) -> list[Tensor]:
    (x,) = operands(w, op)
    strange = w.of("Or", w.of("IsNaN", x, dtype="i1"), w.of("IsInf", x, dtype="i1"))
    return [w.of("Not", strange)]


def rsqrt(w: Writer, op: Op) -> list[Tensor]:
    return [w.of("Reciprocal", w.of("Sqrt", *operands(w, op)))]


def square(w: Writer, op: Op) -> list[Tensor]:
    (x,) = operands(w, op)
    return [combined(w, "multiply", [x, x])]


def erfc(w: Writer, op: Op) -> list[Tensor]:
    """Writes 1 - erf(x) where that is exact enough; from |x| = 1 on, where it would cancel,
    exp(-x^2) times a quotient of polynomials, those of the library Cephes."""
    (narrow,) = operands(w, op)
    x = narrow if narrow.dtype == "f64" else w.cast(narrow, "f32")

    def number(value: float) -> Tensor:
        return w.constant(value, x.dtype)

    def is_less(a: Tensor, b: Tensor) -> Tensor:
        return w.of("Less", a, b, dtype="i1")

    size = w.of("Min", w.of("Abs", x), number(ERFC_IS_ZERO))
    middle, far = (
        w.of("Div", _polynomial(w, above, size), _polynomial(w, below, size))
        for above, below in (ERFC_MIDDLE, ERFC_FAR)
    )
    factor = chosen(w, is_less(size, number(8)), middle, far)
    tail = w.of("Mul", w.of("Exp", w.of("Neg", w.of("Mul", size, size))), factor)
    outer = chosen(w, is_less(x, number(0)), w.of("Sub", number(2), tail), tail)
    inner = w.of("Sub", number(1), w.of("Erf", x))
    return [w.cast(chosen(w, is_less(size, number(1)), inner, outer), narrow.dtype)]


def _polynomial(w: Writer, coefficients: Sequence[float], x: Tensor) -> Tensor:
    """Evaluates a polynomial whose coefficients begin with the highest power."""
    first, *others = (w.constant(c, x.dtype) for c in coefficients)
    found = first
    for coefficient in others:
        found = w.of("Add", w.of("Mul", found, x), coefficient)
    return found


def cbrt(w: Writer, op: Op) -> list[Tensor]:
    (x,) = operands(w, op)
    return [w.of("Mul", w.of("Sign", x), w.of("Pow", w.of("Abs", x), w.constant(1 / 3, x.dtype)))]


def exponential_minus_one(w: Writer, op: Op) -> list[Tensor]:
    """Writes exp(x) - 1; for |x| below 1 as 2 t / (1 - t), t = tanh(x / 2): nothing cancels."""
    (x,) = operands(w, op)
    one, two = w.constant(1, x.dtype), w.constant(2, x.dtype)
    half = w.of("Tanh", w.of("Div", x, two))
    near = w.of("Div", w.of("Mul", two, half), w.of("Sub", one, half))
    is_near = w.of("Less", w.of("Abs", x), one, dtype="i1")
    return [chosen(w, is_near, near, w.of("Sub", w.of("Exp", x), one))]


def log_plus_one(w: Writer, op: Op) -> list[Tensor]:
    """Writes log(1 + x); for |x| below 0.5 as 2 atanh(x / (x + 2)), where nothing cancels."""
    (x,) = operands(w, op)
    one, two = w.constant(1, x.dtype), w.constant(2, x.dtype)
    near = w.of("Mul", two, w.of("Atanh", w.of("Div", x, w.of("Add", x, two))))
    is_near = w.of("Less", w.of("Abs", x), w.constant(0.5, x.dtype), dtype="i1")
    return [chosen(w, is_near, near, w.of("Log", w.of("Add", x, one)))]


def atan2(w: Writer, op: Op) -> list[Tensor]:
    """Writes the angle of the point (x, y) of finite numbers, with regard to the signs of zeros."""
    y, x = operands(w, op)
    zero, half_turn = w.constant(0, x.dtype), w.constant(np.pi, x.dtype)

    def is_negative(v: Tensor) -> Tensor:
        either = [w.of("Less", part, zero, dtype="i1") for part in (v, w.of("Reciprocal", v))]
        return w.of("Or", *either)

    level = w.of("Equal", y, zero, dtype="i1")
    slope = chosen(w, level, zero, w.of("Atan", w.of("Div", y, x)))
    turned = chosen(w, is_negative(y), w.of("Neg", half_turn), half_turn)
    return [w.of("Add", slope, chosen(w, is_negative(x), turned, zero))]


def round_nearest_afz(w: Writer, op: Op) -> list[Tensor]:
    """Writes rounding to the nearest whole number, with halves away from zero."""
    (x,) = operands(w, op)
    size = w.of("Abs", x)
    down = w.of("Floor", size)
    up = w.of("GreaterOrEqual", w.of("Sub", size, down), w.constant(0.5, x.dtype), dtype="i1")
    return [w.of("Mul", w.of("Sign", x), w.of("Add", down, w.cast(up, x.dtype)))]


def reduce_precision(w: Writer, op: Op) -> list[Tensor]:
    (x,) = operands(w, op)
    precision = (number(op, "exponent_bits"), number(op, "mantissa_bits"))
    through = {(8, 7): "bf16", (5, 10): "f16", (8, 23): "f32"}.get(precision)
    if through is None or not is_float(x.dtype):
        raise refused(op, "the bits of bf16, f16 or f32", precision)
    return [w.cast(w.cast(x, through), x.dtype)]


def constant(w: Writer, op: Op) -> list[Tensor]:
    value = op["value"]
    if not isinstance(value, Literal):
        raise refused(op, "a value", value)
    array = value.array()
    if value.splat:
        array = array.reshape(-1)[:1].reshape((1,) * array.ndim)
    return [w.constant(array, value.type.dtype)]


def iota(w: Writer, op: Op) -> list[Tensor]:
    kind, d = w.type(op.results[0]), number(op, "iota_dimension")
    shape = [1] * len(kind.shape)
    shape[d] = kind.shape[d]
    return [w.constant(np.arange(kind.shape[d]).reshape(shape), kind.dtype)]


def unchanged(w: Writer, op: Op) -> list[Tensor]:
    return operands(w, op)


_RULES: dict[str, Callable[[Writer, Op], list[Tensor]]] = {
    **dict.fromkeys(ONE_NODE, arithmetic),
    **dict.fromkeys(OF_BITS, bits),
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), shift),
    "remainder": remainder, "compare": compare, "select": select, "clamp": clamp,
    "convert": convert, "is_finite": is_finite, "rsqrt": rsqrt, "square": square, "erfc": erfc,
    "cbrt": cbrt, "exponential_minus_one": exponential_minus_one, "log_plus_one": log_plus_one,
    "atan2": atan2, "round_nearest_afz": round_nearest_afz, "reduce_precision": reduce_precision,
    "constant": constant, "iota": iota, "optimization_barrier": unchanged,
}  # fmt: skip
RULES: dict[str, Rule] = {
    f"{dialect}.{name}": cast(Rule, rule)
    for name, rule in _RULES.items()
    for dialect in ("stablehlo", "chlo")
}

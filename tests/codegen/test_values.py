"""Conversions and arithmetic of every element type, compared with NumPy."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.values import literal
from hlotune.hlo.oracle.integers import INTEGERS, LOGIC
from hlotune.schedules.dtypes import BYTES, GROUPS, is_float
from hlotune.schedules.errors import UnsupportedKernel
from tests.support.elementwise import NUMPY, Elementwise, Operation, runs_here

Array = np.ndarray[Any, Any]

DTYPES = tuple(d for d in BYTES if d not in GROUPS)
FLOATS = tuple(d for d in DTYPES if is_float(d))
WHOLE = tuple(d for d in DTYPES if not is_float(d) and d != "i1")
LEVELS = (("x86-64", 1), ("x86-64", 4), ("x86-64-v3", 8), ("x86-64-v4", 16))
MACHINES = tuple((isa, lanes) for isa, lanes in LEVELS if runs_here(isa))
FORMATS = {"bf16": (8, -126), "f16": (11, -14), "f32": (24, -126), "f64": (53, -1022)}
"""Bits of the significand, least exponent of a normal number."""

CONVERTS = [Operation("convert", (a,), b) for a, b in product(DTYPES, DTYPES) if a != b]
INTEGER_OPS = [
    Operation(op, (d, d), d)
    for d in WHOLE
    for op in (
        "add", "subtract", "multiply", "divide", "remainder", "power", "maximum", "minimum",
        "and", "or", "xor",
    )
]  # fmt: skip
UNARY_OPS = [Operation(op, (d,), d) for d in WHOLE for op in ("negate", "not", "abs", "sign")]
LOGIC_OPS = [
    Operation(op, ("i1", "i1"), "i1")
    for op in ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
]
FLOAT_OPS = [
    Operation(op, (d,) * count, d)
    for d in FLOATS
    for count, ops in (
        (1, ("negate", "abs", "sign", "floor", "ceil", "round_nearest_even", "sqrt")),
        (2, ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum")),
        (3, ("clamp",)),
    )
    for op in ops
]
DIRECTIONS = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less,
    "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal,
}  # fmt: skip
COMPARES = [Operation(f"compare_{how}", (d, d), "i1") for how in DIRECTIONS for d in DTYPES]
ALL = [*CONVERTS, *INTEGER_OPS, *UNARY_OPS, *LOGIC_OPS, *FLOAT_OPS, *COMPARES]


@cache
def machine(isa: str, lanes: int) -> Elementwise:
    return Elementwise(ALL, isa, lanes)


@pytest.fixture(params=MACHINES, ids=lambda m: f"{m[0]}-{m[1]}")
def code(request: pytest.FixtureRequest) -> Elementwise:
    return machine(*request.param)


def numbers(dtype: str, count: int = 1500, seed: int = 0) -> Array:
    """Random bits, numbers of every size, and what stands at the edges."""
    rng, kind = np.random.default_rng([seed, len(dtype), count]), NUMPY[dtype]
    if dtype == "i1":
        return rng.random(count) < 0.5
    raw = rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
    if not is_float(dtype):
        limits = np.iinfo(kind)
        shifts = rng.integers(0, 8 * kind.itemsize, count).astype(kind)
        small = np.arange(-4 if limits.min else 0, 5).astype(kind)
        edges = np.array([limits.min, limits.max], kind)
        return np.concatenate([raw, raw >> shifts, edges, small])
    sized = rng.standard_normal(count) * 2.0 ** rng.integers(-30, 70, count)
    special = [0.0, -0.0, 1.0, -1.0, 0.5, -1.5, 2.5, np.inf, -np.inf, np.nan, 65519.0, 65520.0]
    ties = 1 + np.concatenate([np.arange(1, 32, 2) * 2.0**-8, np.arange(1, 32, 2) * 2.0**-11])
    halfway = np.add.outer(ties, [0.0, 2.0**-40, -(2.0**-40)]).ravel()
    with np.errstate(all="ignore"):
        return np.concatenate([raw, np.concatenate([sized, special, halfway]).astype(kind)])


def pairs(dtype: str) -> tuple[Array, Array]:
    a, b = numbers(dtype), numbers(dtype, seed=1)
    left, right = np.repeat(a[-12:], 12), np.tile(b[-12:], 12)
    return np.concatenate([a, left]), np.concatenate([b, right])


def rounded(x: Array, dtype: str) -> Array:
    """Exact numbers rounded once, to nearest, ties to even."""
    precision, least = FORMATS[dtype]
    with np.errstate(all="ignore"):
        x = x.astype(np.longdouble)
        _, exponent = np.frexp(x)
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent, least + 1) - precision)
        near = np.where(np.isfinite(x), np.rint(x / unit) * unit, x)
        return near.astype(np.float64).astype(NUMPY[dtype])


def assert_same(got: Array, want: Array, *args: Array) -> None:
    """Equal, zeros with their sign; any number that is none for any other."""
    with np.errstate(all="ignore"):
        equal = got == want
        if not np.issubdtype(want.dtype, np.integer) and want.dtype != np.bool_:
            equal &= np.signbit(got) == np.signbit(want)
            equal |= (got != got) & (want != want)
    wrong = np.flatnonzero(~equal)[:5]
    assert not wrong.size, (
        f"of {[list(a[wrong]) for a in args]} got {list(got[wrong])}, expected {list(want[wrong])}"
    )


def test_floats_convert_to_floats_with_one_rounding(code: Elementwise) -> None:
    for operation in CONVERTS:
        source, result = operation.args[0], operation.result
        if is_float(source) and is_float(result):
            x = numbers(source)
            assert_same(code(operation, x), rounded(x, result), x)


def test_integers_convert_to_floats_with_one_rounding(code: Elementwise) -> None:
    for operation in CONVERTS:
        source, result = operation.args[0], operation.result
        if is_float(result) and not is_float(source):
            x = numbers(source)
            assert_same(code(operation, x), rounded(x, result), x)


@pytest.mark.parametrize("result", ["bf16", "f16"])
@pytest.mark.parametrize("source", ["f64", "i32", "i64", "ui64"])
def test_what_lies_just_beyond_a_tie_is_not_rounded_twice(source: str, result: str) -> None:
    bits = FORMATS[result][0]
    tie, unit = ((1 << bits) + 1), 1 if source == "f64" else 2 ** (15 - bits)
    step = 2.0**-40 if source == "f64" else 1
    base = tie * unit
    if source.endswith("64") and source != "f64" and result == "bf16":
        base = tie << 63 - 2 - bits
    x = np.array([base, base + step, base - step], NUMPY[source])
    operation = Operation("convert", (source,), result)
    for isa, lanes in MACHINES:
        got = machine(isa, lanes)(operation, x)
        assert_same(got, rounded(x, result), x)
        assert got[0] != got[1], "the tie goes down, what is above it goes up"


def test_floats_convert_to_integers_towards_zero_and_saturate(code: Elementwise) -> None:
    for operation in CONVERTS:
        source, result = operation.args[0], operation.result
        if is_float(source) and not is_float(result) and result != "i1":
            x, limits = numbers(source), np.iinfo(NUMPY[result])
            with np.errstate(all="ignore"):
                wide = np.trunc(x.astype(np.longdouble))
            wide = np.nan_to_num(wide, nan=0.0, posinf=1e30, neginf=-1e30)
            want = [min(max(int(v), int(limits.min)), int(limits.max)) for v in wide]
            assert_same(code(operation, x), np.array(want, NUMPY[result]), x)


def test_integers_convert_to_integers_by_their_low_bits(code: Elementwise) -> None:
    for operation in CONVERTS:
        source, result = operation.args[0], operation.result
        if not is_float(source) and not is_float(result) and result != "i1":
            x = numbers(source)
            assert_same(code(operation, x), x.astype(NUMPY[result]), x)


def test_everything_but_zero_converts_to_true(code: Elementwise) -> None:
    for operation in CONVERTS:
        if operation.result == "i1":
            x = numbers(operation.args[0])
            with np.errstate(all="ignore"):
                want = x != 0
            assert_same(code(operation, x), want, x)


def test_integer_arithmetic_wraps_and_never_traps(code: Elementwise) -> None:
    for operation in INTEGER_OPS:
        a, b = pairs(operation.result)
        with np.errstate(all="ignore"):
            want = INTEGERS[operation.op](a, b)
        assert_same(code(operation, a, b), want, a, b)


@pytest.mark.parametrize("dtype", [d for d in WHOLE if not d.startswith("u")])
def test_division_by_zero_and_of_the_least_value_is_defined(dtype: str) -> None:
    least = np.iinfo(NUMPY[dtype]).min
    a, b = np.array([7, -7, least, least], NUMPY[dtype]), np.array([0, 0, -1, 0], NUMPY[dtype])
    for isa, lanes in MACHINES:
        quotient = machine(isa, lanes)(Operation("divide", (dtype, dtype), dtype), a, b)
        rest = machine(isa, lanes)(Operation("remainder", (dtype, dtype), dtype), a, b)
        assert quotient.tolist() == [-1, -1, least, -1]
        assert rest.tolist() == [7, -7, 0, least]


def test_integers_of_one_operand(code: Elementwise) -> None:
    for operation in UNARY_OPS:
        x = numbers(operation.result)
        with np.errstate(all="ignore"):
            want = INTEGERS[operation.op](x)
        assert_same(code(operation, x), want, x)


def test_predicates_add_as_or_and_multiply_as_and(code: Elementwise) -> None:
    a, b = numbers("i1"), numbers("i1", 1500, 1)
    for operation in LOGIC_OPS:
        assert_same(code(operation, a, b), LOGIC[operation.op](a, b), a, b)


FLOAT_WANT: dict[str, Any] = {
    "negate": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil,
    "round_nearest_even": np.rint, "sqrt": np.sqrt, "add": np.add, "subtract": np.subtract,
    "multiply": np.multiply, "divide": np.divide, "remainder": np.fmod,
    "sign": lambda x: np.where((x == 0) | np.isnan(x), x, np.copysign(1, x)),
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip
UNORDERED_ZEROS = ("maximum", "minimum", "clamp")
"""Where NumPy takes either zero."""


def test_float_arithmetic_is_rounded_to_its_type(code: Elementwise) -> None:
    for operation in FLOAT_OPS:
        dtype, count = operation.result, len(operation.args)
        args = [numbers(dtype, seed=k) for k in range(count)]
        work = np.float64 if dtype == "f64" else np.float32
        with np.errstate(all="ignore"):
            want = FLOAT_WANT[operation.op](*(a.astype(work) for a in args)).astype(NUMPY[dtype])
        got = code(operation, *args)
        if operation.op in UNORDERED_ZEROS:
            got, want = np.where(got == 0, 0, got), np.where(want == 0, 0, want)
        assert_same(got, want, *args)


def test_comparisons_follow_the_signedness_of_the_type(code: Elementwise) -> None:
    for operation in COMPARES:
        a, b = pairs(operation.args[0])
        with np.errstate(all="ignore"):
            want = DIRECTIONS[operation.op[8:]](a, b)
        assert_same(code(operation, a, b), want, a, b)


@pytest.mark.parametrize("lanes", [1, 8])
def test_a_literal_keeps_the_sign_of_zero(lanes: int) -> None:
    assert "0x8000000000000000" in literal(-0.0, "f32", lanes).name
    assert "8000" not in literal(0.0, "f32", lanes).name


def test_an_operation_without_code_is_refused() -> None:
    f = Function(Module(), "define void @f()")
    for dtype in ("f32", "i32"):
        with pytest.raises(UnsupportedKernel, match=rf"no code for digamma on {dtype} yet"):
            apply(f, "digamma", (literal(1, dtype, 1),), dtype)


def test_zeros_of_both_signs_are_literals_of_their_own() -> None:
    positive, negative = literal(0.0, "f32", 1), literal(-0.0, "f32", 1)
    assert (positive.name, negative.name) == ("0x0000000000000000", "0x8000000000000000")
    assert literal(-0.0, "f32", 4).name != literal(0.0, "f32", 4).name

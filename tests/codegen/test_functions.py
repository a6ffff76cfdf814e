"""Functions of floats: errors against references of more digits, results at the edges."""

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special

from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.math import functions
from hlotune.codegen.llvm.math.functions import UNARY
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Load
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split, Vectorize
from tests.support import fit_polynomials
from tests.support.elementwise import NUMPY, Elementwise, Operation, level, runs_here
from tests.support.reductions import called

Array = np.ndarray[Any, Any]

LEVELS = (("x86-64", 1), ("x86-64", 4), ("x86-64-v3", 1), ("x86-64-v3", 8), ("x86-64-v4", 16))
MACHINES = tuple((isa, lanes) for isa, lanes in LEVELS if runs_here(isa))
OF_TWO = ("power", "atan2")
NAMES = (*UNARY, *OF_TWO)
OPERATIONS = {
    (name, dtype): Operation(name, (dtype,) * (2 if name in OF_TWO else 1), dtype)
    for name in NAMES
    for dtype in ("f32", "f64", "bf16", "f16")
}
COUNT = 1500
"""So many inputs of each kind are tried."""


@cache
def machine(isa: str, lanes: int) -> Elementwise:
    return Elementwise(list(OPERATIONS.values()), isa, lanes)


def stated_bounds() -> dict[tuple[str, str], float]:
    """The table in the docstring of codegen/llvm/math/functions.py."""
    rows = re.findall(r"^    ([\w, ]+?) {2,}([\d.]+) +([\d.]+)$", functions.__doc__ or "", re.M)
    return {
        (name, dtype): float(bound)
        for names, *bounds in rows
        for name in names.split(", ")
        for dtype, bound in zip(("f32", "f64"), bounds, strict=True)
    }


BOUNDS = stated_bounds()


# inputs and references ----------------------------------------------------------------------------


def inputs(dtype: str, count: int = COUNT) -> Array:
    """Any bits; numbers of ordinary sizes; numbers about 1; edges of types and of functions."""
    rng, kind = np.random.default_rng(7), NUMPY[dtype]
    raw = rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)
    ordinary = [rng.uniform(-s, s, count) for s in (1, 2, 6, 30, 110, 750, 1e5)]
    ordinary.append(1 + rng.standard_normal(count) * 2.0 ** rng.integers(-20, 0, count))
    ordinary.append(rng.standard_normal(count) * 2.0 ** rng.integers(-30, 30, count))
    info = np.finfo(np.float64 if dtype == "f64" else np.float32)
    edges = [
        0, 1, np.inf, np.nan, 0.5, 2, 3, np.pi, np.pi / 2, 88.72284, 103.97, 709.7827, 745.13, 1e6,
        float(info.tiny), float(info.smallest_subnormal), float(info.max), 3e22,
    ]  # fmt: skip
    with np.errstate(all="ignore"):
        return np.concatenate(
            [raw, *ordinary, edges, np.negative(edges)], dtype=kind, casting="unsafe"
        )


def powers(dtype: str) -> tuple[Array, Array]:
    """Pairs of any numbers, pairs whose powers have every size, and all pairs of edges."""
    x = inputs(dtype, 300)
    rng, few = np.random.default_rng(8), x[np.r_[-36:0]]
    with np.errstate(all="ignore"):
        size = np.abs(np.log(np.abs(x.astype(np.float64)))) + 1e-3
        fitting = (rng.uniform(-1, 1, x.size) * (700 if dtype == "f64" else 88) / size).astype(
            x.dtype
        )
    whole = rng.integers(-9, 10, x.size).astype(x.dtype)
    left = np.concatenate([x, x, x, np.repeat(few, few.size)])
    return left, np.concatenate([rng.permutation(x), fitting, whole, np.tile(few, few.size)])


def by_mpmath(function: Callable[[Any], Any], x: Array, large: float = np.inf) -> Array:
    """As long doubles, through two doubles."""

    def value(v: float) -> Any:
        if v != v or abs(v) == np.inf or abs(v) > large:
            return np.longdouble(np.nan)
        exact = function(mp.mpf(float(v)))
        high = float(exact)
        return np.longdouble(high) + np.longdouble(float(exact - high))

    with mp.workprec(1200 if function in (mp.sin, mp.cos, mp.tan) else 120):
        return np.array([value(v) for v in x], np.longdouble)


def error_function(x: Array, *, complement: bool) -> Array:
    far = np.where(x > 0, 1.0, -1.0) if not complement else np.where(x > 0, 0.0, 2.0)
    exact = by_mpmath(mp.erfc if complement else mp.erf, x, 28.0)
    tiny = x.astype(np.longdouble) * (2 / np.sqrt(np.longdouble(np.pi)))
    exact = np.where(np.isnan(exact) & ~np.isnan(x), far, exact)
    return exact if complement else np.where(np.abs(x) < 1e-30, tiny, exact)


def wave(function: Callable[[Any], Any], x: Array) -> Array:
    own: Array = {mp.sin: np.sin, mp.cos: np.cos, mp.tan: np.tan}[function](x)
    far = np.abs(x) > 1e5
    own[far] = by_mpmath(function, x[far])
    return own


WIDE: dict[str, Callable[[Array], Array]] = {
    "exponential": np.exp, "exponential_minus_one": np.expm1,
    "log": np.log, "log_plus_one": np.log1p, "tanh": np.tanh, "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "logistic": lambda x: np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x))),
    "erf": scipy.special.erf, "erfc": scipy.special.erfc, "sine": np.sin, "cosine": np.cos,
    "tan": np.tan,
}  # fmt: skip
LONG = WIDE | {
    "erf": partial(error_function, complement=False),
    "erfc": partial(error_function, complement=True),
    "sine": partial(wave, mp.sin), "cosine": partial(wave, mp.cos), "tan": partial(wave, mp.tan),
}  # fmt: skip
SLOW = ("erf", "erfc", "sine", "cosine", "tan")
"""References of f64 that take mpmath."""


@cache
def case(name: str, dtype: str) -> tuple[tuple[Array, ...], Array]:
    """Operands and exact results."""
    with np.errstate(all="ignore"):
        if name in OF_TWO:
            x, y = powers(dtype)
            exact = {"power": np.power, "atan2": np.arctan2}[name]
            return (x, y), exact(x.astype(np.longdouble), y.astype(np.longdouble))
        if dtype == "f64":
            x = inputs(dtype, 100 if name in SLOW else COUNT)
            return (x,), LONG[name](x.astype(np.longdouble))
        x = inputs(dtype)
        return (x,), WIDE[name](x.astype(np.float64))


def errors(got: Array, exact: Array) -> Array:
    """In units of the last place; infinite where one is infinite, no number, or -0, and one not."""
    kind = got.dtype
    with np.errstate(all="ignore"):
        want = exact.astype(kind)
        apart = np.abs(got.astype(np.longdouble) - exact) / unit(exact, kind)
        none = np.isnan(got) & np.isnan(want)
        endless = (got == want) & np.isinf(want)
        lost_sign = (got == 0) & (exact == 0) & (np.signbit(got) != np.signbit(exact))
    return np.where(none | endless, 0, np.where(np.isnan(apart) | lost_sign, np.inf, apart))


def unit(exact: Array, kind: np.dtype[Any]) -> Array:
    """The last place of a type at each value, also of what it rounds to infinity."""
    bits, least = PLACES[kind]
    with np.errstate(all="ignore"):
        size = np.minimum(np.abs(exact.astype(kind).astype(np.longdouble)), LARGEST[kind])
    place: Array = np.ldexp(np.longdouble(1), np.maximum(np.frexp(size)[1], least + 1) - bits)
    return place


PLACES = {
    NUMPY["bf16"]: (8, -126), NUMPY["f16"]: (11, -14),
    NUMPY["f32"]: (24, -126), NUMPY["f64"]: (53, -1022),
}  # fmt: skip
LARGEST = {
    kind: np.ldexp(np.longdouble(2) - np.ldexp(np.longdouble(1), 1 - bits), 1 - least)
    for kind, (bits, least) in PLACES.items()
}


def worst(name: str, dtype: str, code: Elementwise) -> tuple[float, str]:
    """The largest error and where it is."""
    args, exact = case(name, dtype)
    got = code(OPERATIONS[name, dtype], *args)
    error = errors(got, exact)
    k = int(np.argmax(error))
    where = ", ".join(repr(a[k].item()) for a in args)
    return float(error[k]), f"{name}({where}) = {got[k]!r}, exact {exact[k]!r}"


# accuracy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa_lanes", MACHINES, ids=lambda m: f"{m[0]}-{m[1]}")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", NAMES)
def test_errors_stay_below_what_the_table_states(
    name: str, dtype: str, isa_lanes: tuple[str, int]
) -> None:
    error, where = worst(name, dtype, machine(*isa_lanes))
    assert error <= BOUNDS[name, dtype], f"{error:.3f} units: {where}"


OF_ONE = tuple(name for name in NAMES if name not in OF_TWO)
VECTORS = tuple((isa, lanes) for isa, lanes in MACHINES if lanes > 1)


def most_units(name: str) -> float:
    """What a function of one f32 promises: two units of the last place, or what is stated above."""
    return max(2.0, BOUNDS[name, "f32"])


def beyond(name: str, x: Array, machines: Sequence[tuple[str, int]]) -> str:
    """Where an f32 is further off than is promised; nothing where none is on any machine."""
    with np.errstate(all="ignore"):
        exact = WIDE[name](x.astype(np.float64))
    return "; ".join(filter(None, (_beyond(name, x, exact, m) for m in machines)))


def _beyond(name: str, x: Array, exact: Array, isa_lanes: tuple[str, int]) -> str:
    got = machine(*isa_lanes)(OPERATIONS[name, "f32"], x)
    with np.errstate(all="ignore"):
        right = exact.astype(np.float32)
    apart = np.abs(got.view(np.int32).astype(np.int64) - right.view(np.int32))
    doubtful = np.flatnonzero((apart > 1) & ~(np.isnan(got) & np.isnan(right)))
    if not doubtful.size:
        return ""
    error = errors(got[doubtful], exact[doubtful].astype(np.longdouble))
    k = int(np.argmax(error))
    at = doubtful[k]
    said = f"{error[k]:.2f} units with {isa_lanes}: {name}({x[at]!r}) = {got[at]!r}"
    return said if error[k] > most_units(name) else ""


@pytest.mark.parametrize("name", OF_ONE)
def test_a_million_f32_of_all_sizes_are_within_the_units_that_are_promised(name: str) -> None:
    patterns = np.linspace(0, 2**32 - 1, 1_000_000).astype(np.uint32)
    assert not beyond(name, patterns.view(np.float32), VECTORS[-2:])


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ONE)
def test_every_f32_is_within_the_units_that_are_promised(name: str) -> None:
    for first in range(0, 1 << 32, 1 << 24):
        patterns = np.arange(first, first + (1 << 24), dtype=np.uint32)
        assert not beyond(name, patterns.view(np.float32), VECTORS)


@pytest.mark.parametrize("name", OF_TWO)
def test_functions_of_two_f32_are_within_two_units(name: str) -> None:
    error, where = worst(name, "f32", machine(*MACHINES[-1]))
    assert error <= 2, where


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", NAMES)
def test_narrow_floats_are_rounded_to_nearest_but_for_what_their_f32_is_wrong(
    name: str, dtype: str
) -> None:
    error, where = worst(name, dtype, machine("x86-64-v3", 8))
    assert error <= 0.51, f"{error:.3f} units: {where}"


def test_the_table_states_a_bound_for_every_function() -> None:
    assert set(BOUNDS) == {(name, dtype) for name in NAMES for dtype in ("f32", "f64")}


@pytest.mark.parametrize(("isa", "lanes"), [("x86-64", 4), ("x86-64-v3", 8)])
def test_a_vector_holds_what_its_lanes_would_alone(isa: str, lanes: int) -> None:
    for (name, dtype), operation in OPERATIONS.items():
        args, _ = case(name, dtype)
        one, many = machine(isa, 1)(operation, *args), machine(isa, lanes)(operation, *args)
        none = (one != one) & (many != many)
        assert (none | (one.view(f"u{one.itemsize}") == many.view(f"u{one.itemsize}"))).all(), name


# edges --------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")
EDGES: dict[str, list[tuple[float, float]]] = {
    "exponential": [(INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 1.0), (1e30, INF), (-1e30, 0.0)],
    "exponential_minus_one": [(INF, INF), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "log": [(INF, INF), (-INF, NAN), (NAN, NAN), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN)],
    "log_plus_one": [(INF, INF), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN)],
    "tanh": [(INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "logistic": [(INF, 1.0), (-INF, 0.0), (NAN, NAN), (0.0, 0.5)],
    "erf": [(INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "erfc": [(INF, 0.0), (-INF, 2.0), (NAN, NAN), (0.0, 1.0)],
    "rsqrt": [(INF, 0.0), (-1.0, NAN), (NAN, NAN), (0.0, INF), (-0.0, -INF), (4.0, 0.5)],
    "cbrt": [(INF, INF), (-INF, -INF), (NAN, NAN), (-0.0, -0.0), (27.0, 3.0), (-8.0, -2.0)],
    "sine": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "tan": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "cosine": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("name", EDGES)
def test_edges_are_exact(name: str, dtype: str) -> None:
    x, want = np.array(EDGES[name]).T
    with np.errstate(all="ignore"):
        got = machine("x86-64-v3", 8)(OPERATIONS[name, dtype], x).astype(np.float64)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_at_the_edges_are_those_of_the_c_library(dtype: str) -> None:
    edges = [
        0.0,
        -0.0,
        1,
        -1,
        INF,
        -INF,
        NAN,
        2,
        -2,
        0.5,
        -0.5,
        3,
        -3,
        1e30,
        -1e30,
        2.0**24 + 1,
        2.5,
    ]
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    got = machine("x86-64-v3", 8)(OPERATIONS["power", dtype], x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(got.dtype), y.astype(got.dtype))
    np.testing.assert_allclose(got, want, rtol=1e-6 if dtype == "f32" else 1e-15)
    np.testing.assert_array_equal(np.signbit(got[want == want]), np.signbit(want[want == want]))


# code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isa", "lanes", "allowed"),
    [("x86-64", 4, {"fma"}), ("x86-64-v3", 8, set()), ("x86-64-v4", 16, set())],
)  # fmt: skip
def test_nothing_is_left_to_the_c_library(isa: str, lanes: int, allowed: set[str]) -> None:
    wide = [o for (_, dtype), o in OPERATIONS.items() if dtype in ("f32", "f64")]
    text = assembly(Elementwise(wide, isa, lanes).text, level(isa))
    called = set(re.findall(r"^\s+(?:call|jmp)\w*\s+([a-z_]\w*)", text, re.M))
    assert called <= allowed


def test_coefficients_are_those_that_the_fits_give() -> None:
    assert fit_polynomials.POLYNOMIALS.read_text(encoding="utf-8") == fit_polynomials.text()
    assert fit_polynomials.TABLES.read_text(encoding="utf-8") == fit_polynomials.tables_text()


@pytest.mark.parametrize("exponent", [0.5, 1, 1.5, 2, 2.5, 3, 4, -0.5, -1, -1.5, -2, -3.5, -4])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_of_a_known_exponent_are_products(dtype: str, exponent: float) -> None:
    """At the edges as the C library has them; elsewhere off by few units of the last place."""
    x, _ = powers(dtype)
    kind = Tensor("x", x.shape, dtype, "argument"), Tensor("y", x.shape, dtype, "result")
    i = (Affine.axis("i0"),)
    value = Apply("power", (Load("x", i, dtype), Const(exponent, dtype)), dtype)
    stage = Stage("out", (Axis("i0", x.size),), (), (Store("y", i),), (value,))
    compute, steps = Compute(kind, (stage,)), (Split("out", "i0", (8,)), Vectorize("out", "i0.1"))
    (got,) = called(compute, steps, [x])
    with np.errstate(all="ignore"):
        wanted = np.power(x.astype(np.longdouble), np.longdouble(exponent)).astype(x.dtype)
    normal = (np.abs(wanted) >= np.finfo(x.dtype).tiny) | (wanted == 0) | np.isnan(wanted)
    rtol = 1.5 * abs(2 * exponent) * float(np.finfo(x.dtype).eps) + 1e-20
    np.testing.assert_allclose(got[normal], wanted[normal], rtol=rtol)
    edges = np.isinf(x) | (x == 0)
    np.testing.assert_array_equal(np.signbit(got[edges]), np.signbit(wanted[edges]))
    assert "exp" not in emit(replay(compute, Schedule("direct", steps), host_target())).text

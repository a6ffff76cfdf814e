"""One and a hyperbolic tangent are one quotient, and as near to what is right as is stated."""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from benchmarks.row_kernels import COLUMN, ROW
from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.idioms.risen_tangents import risen_tangent
from hlotune.codegen.llvm.math.tables import looks_up_eight
from hlotune.hlo.frontends.program import load
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Apply, Const, Expr, Load
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.codegen.test_functions import errors
from tests.support.elementwise import level
from tests.support.reductions import called
from tests.support.whole_kernels import wrong_results

Array = np.ndarray[Any, Any]
X = Load("a0", (ROW, COLUMN), "f32")
ONE = Const(1.0, "f32")
ULPS = 2.4
"""Units of the last place of what is right, where a float of it is above 1e-37."""
ROWS, COLUMNS = 64, 65_539
NEEDS_LOOKUPS = pytest.mark.skipif(
    not looks_up_eight(host_target().features), reason="other targets add one to a tangent"
)


def tangent(x: Expr = X) -> Apply:
    return Apply("tanh", (x,), "f32")


def plus(a: Expr, b: Expr, dtype: str = "f32") -> Apply:
    return Apply("add", (a, b), dtype)


def with_features(*features: str) -> Function:
    return Function(Module(features=features), "define void @f()")


def argument(expr: Expr, *others: Expr, features: tuple[str, ...] = ("avx2", "fma")) -> Expr | None:
    return risen_tangent(with_features(*features), expr, (expr, *others))


@cache
def kernel(columns: int) -> Compute:
    i, j = Axis("i", ROWS), Axis("j", columns)
    stage = Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),), (plus(ONE, tangent()),))
    shape = ROWS, columns
    x, y = Tensor("a0", shape, "f32", "argument"), Tensor("y0", shape, "f32", "result")
    return Compute((x, y), (stage,))


def of(x: Array) -> Array:
    compute = kernel(x.shape[1])
    space = space_of(compute, host_target())
    found: Array = called(compute, space.schedule(space.heuristic()).steps, [x])[0]
    return found.reshape(x.shape)


def right(x: Array) -> Array:
    """1 + tanh(x), by the quotient, in f64."""
    with np.errstate(all="ignore"):
        return 2 / (1 + np.exp(-2 * x.astype(np.float64)))


def test_one_may_stand_on_either_side() -> None:
    assert argument(plus(ONE, tangent())) == X
    assert argument(plus(tangent(), ONE)) == X


@pytest.mark.parametrize("other", [
    plus(Const(2.0, "f32"), tangent()), plus(X, tangent()), plus(ONE, X),
    Apply("subtract", (ONE, tangent()), "f32"), plus(ONE, tangent(), "f64"),
])  # fmt: skip
def test_other_sums_are_none(other: Expr) -> None:
    assert argument(other) is None


def test_a_tangent_that_is_needed_beside_the_sum_stays() -> None:
    shared = tangent()
    whole = plus(ONE, shared)
    assert argument(whole, shared) is None
    assert argument(whole, Apply("multiply", (shared, shared), "f32")) is None
    assert argument(whole, Apply("multiply", (whole, whole), "f32")) == X


@pytest.mark.parametrize("features", [("fma",), ("avx2", "avx512f")])
def test_targets_without_lookups_of_eight_lanes_keep_the_tangent(features: tuple[str, ...]) -> None:
    assert argument(plus(ONE, tangent()), features=features) is None


def test_code_has_one_quotient_and_no_choice_between_near_and_far() -> None:
    """A tangent alone joins a polynomial around zero with its quotient, by a blend."""
    compute, target = kernel(COLUMNS), level("x86-64-v3")
    space = space_of(compute, target)
    nest = replay(compute, space.schedule(space.heuristic()), target)
    text = assembly(emit(nest).text, target)
    assert "vdivps" in text
    assert "vblendvps" not in text


@NEEDS_LOOKUPS
def test_numbers_of_all_sizes_are_as_near_as_is_stated() -> None:
    x = np.linspace(0, 2**32 - 1, ROWS * COLUMNS).astype(np.uint32).view(np.float32)
    within(x.reshape(ROWS, COLUMNS))
    within(np.linspace(-44, 11, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS))


@NEEDS_LOOKUPS
@pytest.mark.slow
def test_every_f32_is_as_near_as_is_stated() -> None:
    step = ROWS * COLUMNS
    for start in range(0, 1 << 32, step):
        bits = np.minimum(np.arange(start, start + step), 2**32 - 1).astype(np.uint32)
        within(bits.view(np.float32).reshape(ROWS, COLUMNS))


def within(x: Array) -> None:
    """Asserts that sums are right: below -44, where they are 1e-38, they may be zero as well."""
    got, exact = of(x), right(x)
    far = x < -44
    apart = errors(got, exact)
    assert apart[~far].max(initial=0) <= ULPS
    assert ((got[far] >= 0) & (got[far] <= 2e-38)).all()


def test_edges_are_exact() -> None:
    x = np.zeros((ROWS, 65), np.float32)
    x[0, :7] = np.inf, -np.inf, 0.0, -0.0, np.nan, 3e38, -3e38
    got = of(x)
    np.testing.assert_array_equal(got[0, :7], [2, 0, 1, 1, np.nan, 2, 0])
    np.testing.assert_array_equal(got[0, 7:], 1)


def test_kernels_with_it_are_right_beside_the_oracle() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((33, 45)).astype(np.float32) * 3

    def unit(x: jax.Array, b: jax.Array) -> jax.Array:
        return jax.nn.gelu(x + b)

    assert wrong_results(load(unit, x, x[0].copy()), rng, configs=3) == []
    gradient = jax.grad(lambda x: jax.nn.gelu(x).sum())
    assert wrong_results(load(gradient, x), rng, configs=3) == []

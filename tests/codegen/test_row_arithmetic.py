"""Arithmetic that kernels of rows have their own instructions for: quotients, extremes, scaling."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from benchmarks.row_kernels import OF_ROWS, log_softmax, softmax
from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.math.operations import apply
from hlotune.codegen.llvm.math.values import Value
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.lost_nan import may_pass_over_nan
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.ir.zero_signs import may_be_either_zero
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.elementwise import level
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
ROW, COLUMN = Affine.axis("i"), Affine.axis("j")
TYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-7}
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -3.0, 1e30]


def vectorized(compute: Compute, *values: Array) -> Array:
    """The result of the first candidate."""
    space = space_of(compute, host_target())
    result: Array = called(compute, space.schedule(space.heuristic()).steps, values)[0]
    return result


def quotients(dtype: str, x: Array, by: Array) -> Array:
    """`x[i, j] / by[i]` by a kernel whose vectors lie along j."""
    a, b = Load("a0", (ROW, COLUMN), dtype), Load("a1", (ROW,), dtype)
    axes = Axis("i", x.shape[0]), Axis("j", x.shape[1])
    value = Apply("divide", (a, b), dtype)
    stage = Stage("out", axes, (), (Store("y0", (ROW, COLUMN)),), (value,))
    tensors = (
        Tensor("a0", x.shape, dtype, "argument"),
        Tensor("a1", by.shape, dtype, "argument"),
        Tensor("y0", x.shape, dtype, "result"),
    )
    return vectorized(Compute(tensors, (stage,)), x, by).reshape(x.shape)


@pytest.mark.parametrize("dtype", TYPES)
def test_quotients_by_one_number_a_row_are_those_of_a_division(dtype: str) -> None:
    rng, kind = np.random.default_rng(3), TYPES[dtype]
    x, by = (rng.standard_normal(n) * 2.0 ** rng.integers(-30, 30, n) for n in ((16, 400), (16, 1)))
    x, by = x.astype(kind), by.astype(kind)
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.longdouble) / by.astype(np.longdouble)).astype(kind)
    got = quotients(dtype, x, by[:, 0])
    assert (got == wanted).mean() > 0.999
    error = np.abs(got.astype(np.longdouble) - wanted.astype(np.longdouble))
    unit = np.abs(wanted.astype(np.longdouble)) * EPSILON[dtype]
    assert (error <= unit).all()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_extremes_of_zeros_infinities_and_nan_are_those_of_ieee_754(op: str, dtype: str) -> None:
    edges = np.resize(np.array([*EDGES, -np.nan, 1.0], TYPES[dtype]), 32)
    first, second = (np.ascontiguousarray(x) for x in np.meshgrid(edges, edges))
    axes = Axis("i", edges.size), Axis("j", edges.size)
    args = tuple(Load(name, (ROW, COLUMN), dtype) for name in ("a0", "a1"))
    stage = Stage("out", axes, (), (Store("y0", (ROW, COLUMN)),), (Apply(op, args, dtype),))
    tensors = [Tensor(name, first.shape, dtype, "argument") for name in ("a0", "a1")]
    result = Tensor("y0", first.shape, dtype, "result")
    got = vectorized(Compute((*tensors, result), (stage,)), first, second).reshape(first.shape)
    wanted = getattr(np, op)(first, second)
    zeros = (first == 0) & (second == 0)
    signs = np.signbit(first), np.signbit(second)
    negative = signs[0] & signs[1] if op == "maximum" else signs[0] | signs[1]
    assert np.array_equal(got, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got)[zeros], negative[zeros])
    assert zeros.sum() == 64


def test_extremes_of_two_unknown_vectors_are_three_instructions() -> None:
    def called_for(lanes: int, feature: str, *names: str) -> list[str]:
        module = Module(features=(feature,))
        operands = tuple(Value(n, "f32", lanes) for n in names)
        apply(Function(module, "define void @f()"), "maximum", operands, "f32")
        return list(module.declarations)

    assert called_for(16, "avx512dq", "%a", "%b") == ["llvm.x86.avx512.mask.range.ps.512"]
    assert called_for(16, "avx512dq", "%a", "zeroinitializer") == ["llvm.maximum.v16f32"]
    assert called_for(8, "avx512dq", "%a", "%b") == ["llvm.maximum.v8f32"]
    assert called_for(16, "avx512f", "%a", "%b") == ["llvm.maximum.v16f32"]
    assert called_for(8, "avx", "%a", "%b") == []
    assert called_for(8, "avx", "%a", "zeroinitializer") == ["llvm.maximum.v8f32"]


@pytest.mark.parametrize(("isa", "expected", "other"), [
    ("x86-64-v3", "vminps", "vblendvps"), ("x86-64-v4", "vrangeps", "vmaxps"),
])  # fmt: skip
def test_windows_take_extremes_in_few_instructions(isa: str, expected: str, other: str) -> None:
    def pooled(x: jax.Array) -> jax.Array:
        window, strides = (3, 3, 1), (2, 2, 1)
        return jnp.asarray(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME"))

    target = level(isa)
    compute = compute_of(graph_of(sites(load(pooled, np.ones((12, 12, 64), np.float32)))[0].kernel))
    space = space_of(compute, target)
    nest = replay(compute, space.schedule(space.heuristic()), target)
    text = assembly(emit(nest).text, target)
    assert expected in text
    assert other not in text


def test_whole_quotients_are_exact() -> None:
    by = np.arange(1, 65, dtype=np.float32)
    wanted = np.tile(np.arange(-40, 40, dtype=np.float32), (64, 1))
    assert np.array_equal(quotients("f32", wanted * by[:, None], by), wanted)


def test_quotients_of_zeros_infinities_and_nan_are_those_of_a_division() -> None:
    by = np.array(EDGES, np.float32)
    x = np.tile(np.array(EDGES * 8, np.float32), (len(EDGES), 1))
    with np.errstate(all="ignore"):
        wanted = x / by[:, None]
    got = quotients("f32", x, by)
    np.testing.assert_array_equal(got, wanted)
    there = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(got[there]), np.signbit(wanted[there]))


def test_quotients_by_divisors_whose_reciprocal_is_subnormal_are_off_by_five_at_most() -> None:
    rng = np.random.default_rng(5)
    by = (2.0 ** rng.uniform(126, 127.9, 16)).astype(np.float32)
    x = (2.0 ** rng.uniform(100, 127.9, (16, 400))).astype(np.float32)
    wanted = x.astype(np.float64) / by[:, None]
    assert (np.abs(quotients("f32", x, by) - wanted) <= 5 * EPSILON["f32"] * wanted).all()


@pytest.mark.parametrize("make", [softmax, log_softmax], ids=lambda f: f.__name__)
def test_the_sign_of_a_largest_zero_does_not_matter_where_it_is_only_subtracted(make: Any) -> None:
    compute = make(4, 32)
    assert may_be_either_zero(compute, compute.stages[0])


def test_the_sign_of_a_zero_matters_where_it_is_a_result_or_divides() -> None:
    assert not any(
        may_be_either_zero(c, s) for c in [OF_ROWS["over_columns"](4, 32)] for s in c.stages
    )
    compute = softmax(4, 32)
    total = next(s for s in compute.stages if s.name == "sum")
    assert not may_be_either_zero(compute, total)


ROWS = np.ones((4, 32), np.float32)


@pytest.mark.parametrize("function", [
    jax.nn.softmax, jax.nn.log_softmax, lambda x: jax.nn.softmax(jnp.where(x > 0, x, -1e9)) * 2,
], ids=["softmax", "log softmax", "masked"])  # fmt: skip
def test_what_is_no_number_is_not_looked_for_where_the_row_has_it_anyway(function: Any) -> None:
    assert True in searches(function)


@pytest.mark.parametrize("function", [
    lambda x: x.max(-1), lambda x: x - x.max(-1, keepdims=True),
    lambda x: jnp.exp(x - x.max(-1, keepdims=True)),
    lambda x: (jax.nn.softmax(x), x.max(-1)),
    lambda x: jnp.exp(x - x.max(0)).sum(-1),
    lambda x: jnp.where(jnp.isfinite(x), jnp.exp(x - x.max(-1, keepdims=True)), 0.0).sum(-1),
], ids=["itself", "differences", "exponentials", "and itself", "of columns", "masked"])  # fmt: skip
def test_it_is_looked_for_where_some_result_would_be_a_number(function: Any) -> None:
    assert searches(function)
    assert not any(searches(function))


def searches(function: Any) -> list[bool]:
    """Says of each search for a largest element whether it may pass over NaN."""
    found = sites(load(function, ROWS))
    computes = [compute_of(graph_of(s.kernel)) for s in found[:1]]
    return [may_pass_over_nan(c, s) for c in computes for s in c.stages if s.combine is MAX]


def test_rows_of_nan_infinities_and_zeros_of_both_signs_have_the_softmax_of_numpy() -> None:
    x = np.zeros((7, 48), np.float32)
    x[0, ::2] = -0.0
    x[1, 5] = np.nan
    x[2, 47] = -np.nan
    x[3] = -np.inf
    x[4, 3] = np.inf
    x[5] = -100
    x[6, 1:] = -120
    with np.errstate(all="ignore"):
        e = np.exp(x - x.max(1, keepdims=True))
        wanted = e / e.sum(1, keepdims=True)
    got = vectorized(softmax(*x.shape), x).reshape(x.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize("columns", [47, 48, 96, 160, 333])
def test_sums_of_exponentials_are_right_whatever_the_lanes_of_a_row(columns: int) -> None:
    x = Load("a0", (ROW, COLUMN), "f32")
    stage = Stage(
        "all", (Axis("i", 3),), (Axis("j", columns),), (Store("y0", (ROW,)),),
        (Apply("exponential", (x,), "f32"),), SUM,
    )  # fmt: skip
    tensors = Tensor("a0", (3, columns), "f32", "argument"), Tensor("y0", (3,), "f32", "result")
    values = np.random.default_rng(0).uniform(-20, 5, (3, columns)).astype(np.float32)
    got = vectorized(Compute(tensors, (stage,)), values)
    np.testing.assert_allclose(got, np.exp(values.astype(np.float64)).sum(1), rtol=1e-6)

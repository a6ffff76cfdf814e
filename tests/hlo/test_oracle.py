"""The oracle against jax, and against itself box by box."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.hlo.graph import Op
from hlotune.hlo.oracle import (
    compare,
    contraction,
    evaluate,
    evaluation,
    window,
)
from hlotune.hlo.oracle.bounded import Bounded
from hlotune.hlo.oracle.boxes import Box
from hlotune.hlo.oracle.evaluation import LONG_GRAPH, Oracle
from tests.support.oracle_cases import (
    Array,
    Function,
    graph_of,
    lax,
    mismatches,
    normal,
    regions_equal_the_whole,
)

UNARY: dict[str, Function] = {
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "tanh": jnp.tanh,
    "logistic": lax.logistic,
    "sine": jnp.sin,
    "cosine": jnp.cos,
    "tan": jnp.tan,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "cbrt": jnp.cbrt,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "rint": jnp.rint,
    "sign": jnp.sign,
    "square": jnp.square,
    "sinh": jnp.sinh,
    "asinh": jnp.arcsinh,
    "atan": jnp.arctan,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu by tanh": jax.nn.gelu,
    "is_finite": jnp.isfinite,
    "to f16": lambda x: x.astype(jnp.float16),
    "to i32": lambda x: (x * 10).astype(jnp.int32),
    "to i1": lambda x: x.astype(jnp.bool_),
    "bits": lambda x: lax.bitcast_convert_type(x, jnp.int32),
    "bits in bytes": lambda x: lax.bitcast_convert_type(x, jnp.uint8),
    "precision": lambda x: lax.reduce_precision(x, 8, 7),
}
POSITIVE: dict[str, Function] = {
    "log": jnp.log,
    "log1p": jnp.log1p,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "lgamma": lax.lgamma,
    "power": lambda x: x**2.5,
    "reciprocal": lambda x: 3.0 / x,
    "remainder": lambda x: lax.rem(x, jnp.float32(0.3)),
}


@pytest.mark.parametrize("name", UNARY)
def test_function_agrees_with_jax(name: str) -> None:
    assert not mismatches(UNARY[name], 3 * normal(1, 7, 300))


@pytest.mark.parametrize("name", POSITIVE)
def test_function_of_positive_values_agrees_with_jax(name: str) -> None:
    assert not mismatches(POSITIVE[name], np.abs(normal(2, 7, 300)) + np.float32(0.05))


def test_integers_are_exact_and_wrap_around() -> None:
    rng = np.random.default_rng(3)
    a = rng.integers(-(2**31), 2**31, 500, dtype=np.int32)
    b = rng.integers(-5, 40, 500, dtype=np.int32)

    def everything(a: Any, b: Any) -> tuple[Any, ...]:
        binary = (lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.max, lax.bitwise_xor)
        shifts = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
        unary = (lax.neg, lax.abs, lax.sign, lax.bitwise_not, lax.population_count, lax.clz)
        casts = [a.astype(t) for t in (jnp.int8, jnp.uint16, jnp.float32, jnp.bfloat16)]
        both = [f(a, b) for f in binary + shifts]
        return (*both, *(f(a) for f in unary), *casts, jnp.sum(a), jnp.prod(a), a @ b, a**3)

    assert not mismatches(everything, a, b, exact=True)


MODELS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "softmax": (jax.nn.softmax, (5, 60)),
    "log_softmax": (jax.nn.log_softmax, (5, 60)),
    "layer norm": (
        lambda x: (x - x.mean(1)[:, None]) * lax.rsqrt(x.var(1)[:, None] + 1e-5),
        (5, 64),
    ),
    "relu": (jax.nn.relu, (5, 60)),
    "leaky relu": (lambda x: jax.nn.leaky_relu(x @ x.T), (6, 40)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (5, 60)),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0)), (5, 60)),
    "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), (5, 60)),
    "top_k": (lambda x: lax.top_k(x, 4), (5, 60)),
    "scan": (lambda x: lax.scan(lambda c, v: (jnp.tanh(c * 0.5 + v), c.sum()), x[0], x), (9, 8)),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: y + 1, x), (3, 4)),
    "max pool": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (3, 2), (2, 1), "SAME"), (9, 11)),
    "avg pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), "VALID"), (9, 11)),
    "holes in a window": (
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (3, 2), (1, 2), ((2, 1), (0, 3)), (2, 1), (1, 2)
        ),
        (9, 11),
    ),
    "gradient of max pool": (
        jax.grad(
            lambda x: (lax.reduce_window(x, -np.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2).sum()
        ),
        (9, 11),
    ),
    "gather and scatter": (
        lambda x: (x[jnp.array([2, 0, 2])], x.at[jnp.array([1, 1])].add(1.5), x.at[0, 3].set(7.0)),
        (4, 6),
    ),
    "moves": (
        lambda x: (
            jnp.flip(x, 1).T.reshape(4, -1)[1:, ::3],
            lax.pad(x, jnp.float32(2), ((1, -1, 2), (-2, 3, 1))),
            jnp.concatenate([x, x[:2], x * 0], 0),
            lax.dynamic_update_slice(x, x[:2, :3] * 2, (3, 50)),
            lax.dynamic_slice(x, (1, 9), (2, 5)),
        ),
        (6, 10),
    ),
    "constants": (lambda x: x * jnp.arange(10.0) + lax.iota(jnp.int32, 6)[:, None], (6, 10)),
}  # fmt: skip


REGIONS: dict[str, Function] = {
    "two sums": lambda x: lax.reduce(
        (x, x * x), (jnp.float32(0),) * 2, lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,)
    ),
    "log of sum of exp": lambda x: lax.reduce(x, jnp.float32(-np.inf), jnp.logaddexp, (0,)),
    "any and all": lambda x: ((x > 1).any(1), (x > -1).all(0), (x > 0).sum(0)),
    "scatter": lambda x: jnp.zeros((4, 5)).at[jnp.arange(77) % 4].max(x.T),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 5000, lambda c: c * 1.5 + 1, x),
    "switch": lambda x: lax.switch(jnp.argmax(x[0]), [jnp.sin, jnp.cos, jnp.exp], x),
    "slices at positions": lambda x: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (3,)))(
        x, jnp.array([0, 5, 76, 80, -3])
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_operation_with_a_region_agrees_with_jax(name: str) -> None:
    assert not mismatches(REGIONS[name], normal(15, 5, 77))
    regions_equal_the_whole(REGIONS[name], normal(15, 5, 77), limit=4)


@pytest.mark.parametrize("name", MODELS)
def test_program_agrees_with_jax(name: str) -> None:
    function, shape = MODELS[name]
    assert not mismatches(function, normal(4, *shape))


@pytest.mark.parametrize("name", MODELS)
def test_box_of_a_program_equals_the_cut_of_the_whole(name: str) -> None:
    function, shape = MODELS[name]
    regions_equal_the_whole(function, normal(4, *shape))


def test_a_result_of_few_operations_in_a_long_program_is_evaluated_by_boxes() -> None:
    def updates(*xs: Any) -> Any:
        return [jnp.exp(x * n + 1.0) for n, x in enumerate(xs)]

    xs = [normal(n, 80, 90) for n in range(70)]
    graph = graph_of(updates, xs)
    oracle = Oracle(graph, xs)
    assert len(graph.ops) > LONG_GRAPH
    part = oracle.region(3, ((0, 1), (0, 90)))
    assert oracle.whole is None
    np.testing.assert_array_equal(part.value, np.exp(3 * xs[3][:1].astype(float) + 1))


def test_a_result_of_many_operations_is_cut_out_of_the_whole() -> None:
    def chain(x: Any) -> Any:
        for _ in range(LONG_GRAPH + 1):
            x = jnp.sin(x)
        return x

    x = normal(0, 8)
    oracle = Oracle(graph_of(chain, [x]), [x])
    assert oracle.region(0, ((0, 4),)).value.shape == (4,)
    assert oracle.whole is not None


STEPS: list[Function] = [
    lambda x: x * x - x,
    lambda x: jnp.exp(-jnp.abs(x)),
    lambda x: x.T,
    lambda x: jnp.maximum(x, 0.25),
    lambda x: x / (1 + x * x),
    lambda x: x - x.mean(0, keepdims=True),
    lambda x: x @ x.T @ x / x.size,
    lambda x: jnp.where(x > 0.1, x, 0.5 * x + 0.05),
    lambda x: x.reshape(x.shape[1], x.shape[0]),
    lambda x: jnp.concatenate([x[:, 1:], x[:, :1] * 2], 1),
    lambda x: jnp.tanh(x) + jnp.max(x, 1, keepdims=True),
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    lambda x: lax.clamp(-1.0, x, 1.5),
]


@given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=6), st.integers(0, 99))
def test_random_program_agrees_with_jax_and_with_itself(steps: list[int], seed: int) -> None:
    def function(x: Any) -> Any:
        for step in steps:
            x = STEPS[step](x)
        return x

    x = normal(seed, 6, 9)
    assert not mismatches(function, x)
    regions_equal_the_whole(function, x, limit=20)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_chain_stays_in_the_bound_with_and_without_rounding_between(dtype: str) -> None:
    x = normal(5, 500).astype(dtype)

    def chain(x: Any) -> Any:
        return (x * x + x) * jnp.exp(x) - x

    (reference,) = evaluate(graph_of(chain, [x]), [x])
    wide = x.astype(np.float32)
    kept = ((wide * wide + wide) * np.exp(wide) - wide).astype(dtype)
    by_op = (x * x + x) * np.exp(x) - x
    assert compare(reference, kept, factor=1, exact=False) is None
    assert compare(reference, by_op, factor=1, exact=False) is None


def test_what_a_narrow_type_cannot_hold_on_the_way_may_go_on_in_f32() -> None:
    """exp(12) is beyond f16: kernels that round it give a sigmoid of 0, others one of 6e-6."""
    x = np.array([-12.0, -9.0, 3.0], np.float16)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + jnp.exp(-x))

    (reference,) = evaluate(graph_of(sigmoid, [x]), [x])
    kept = (1 / (1 + np.exp(-x.astype(np.float32)))).astype(x.dtype)
    by_op = np.where(x < -11, np.float16(0), kept)
    assert kept[0] > 0
    assert compare(reference, kept, factor=1, exact=False) is None
    assert compare(reference, by_op, factor=1, exact=False) is None
    assert reference.uncompared == pytest.approx(1 / 3)


def test_what_a_program_converts_to_a_narrow_type_is_infinite_beyond_it() -> None:
    x = np.array([7e4, 1.0], np.float32)
    (reference,) = evaluate(graph_of(lambda x: x.astype(jnp.float16), [x]), [x])
    assert reference.value.tolist() == [np.inf, 1.0]
    assert reference.uncompared == 0


def test_narrow_reduction_may_round_every_partial_sum_or_only_the_last() -> None:
    x = normal(5, 40, 64).astype(ml_dtypes.bfloat16)

    def total(x: Any) -> Any:
        return lax.reduce(x, jnp.bfloat16(0), lax.add, (0,))

    (reference,) = evaluate(graph_of(total, [x]), [x])
    each: Array = np.zeros(64, x.dtype)
    for row in x:
        each = each + row
    once = x.astype(np.float32).sum(0).astype(x.dtype)
    assert compare(reference, each, factor=1, exact=False) is None
    assert compare(reference, once, factor=1, exact=False) is None


@pytest.mark.parametrize("limit", [1, 7])
def test_reduction_by_slabs_equals_the_reduction_at_once(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(x: Any) -> tuple[Any, ...]:
        pooled = lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), "SAME")
        return x.sum(0), x.max(), x.prod(1), jnp.argmax(x, 1), x @ x.T, pooled

    x = normal(14, 6, 9)
    graph = graph_of(several, [x])
    at_once = evaluate(graph, [x])
    monkeypatch.setattr(window, "SLAB_ELEMENTS", limit * 9)
    monkeypatch.setattr(contraction, "SLAB_ELEMENTS", limit * 9)
    for slabs, expected in zip(evaluate(graph, [x]), at_once, strict=True):
        np.testing.assert_allclose(slabs.value, expected.value, rtol=1e-12)


def test_a_reduction_is_evaluated_once_though_boxes_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def variance(x: jax.Array) -> jax.Array:
        apart = x - x.mean(0)
        return apart / jnp.sqrt((apart * apart).mean(0))

    x = normal(0, 300, 40)
    oracle = Oracle(graph_of(variance, [x]), [x])
    monkeypatch.setattr(evaluation, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(window, "SLAB_ELEMENTS", 400)
    reduced, applied = list[str](), oracle._applied

    def counted(op: Op, box: Box) -> tuple[Bounded, ...]:
        reduced.extend([op.name] if op.name == "stablehlo.reduce" else [])
        return applied(op, box)

    monkeypatch.setattr(oracle, "_applied", counted)
    for low in range(0, 300, 50):
        oracle.region(0, ((low, low + 50), (0, 40)))
    assert len(reduced) == 2


def test_convert_rounds_to_the_narrow_type() -> None:
    x = normal(6, 100)

    def through(x: Any) -> Any:
        return x.astype(jnp.bfloat16)

    (reference,) = evaluate(graph_of(through, [x]), [x])
    np.testing.assert_array_equal(reference.value, x.astype(ml_dtypes.bfloat16).astype(np.float64))


SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-39, -1e-45, 3e38, -3e38, 1, -1, 88.8, -104, 1e10], "f4"
)


def test_special_values_agree_with_jax_and_subnormal_ones_may_be_flushed() -> None:
    for function in (UNARY | POSITIVE).values():
        assert not mismatches(function, SPECIAL)

    def pairs(x: Any) -> tuple[Any, ...]:
        a, b = x[:, None], x[None]
        # no division: XLA multiplies by reciprocals, and flushes that of a large number to zero
        return a * b, a + b, a - b, jnp.maximum(a, b), jnp.minimum(a, b), a < b

    assert not mismatches(pairs, SPECIAL)
    assert not mismatches(lambda x: (x.sum(), x.max(), x[None] @ x[:, None]), SPECIAL[[0, 2, 9]])


def test_f64_and_wide_integers_agree_with_jax() -> None:
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(20, 300))
        assert not mismatches(lambda x: (x @ x.T, jax.nn.softmax(x), jnp.sort(x, 1)), x)
        i = np.random.default_rng(0).integers(-(2**62), 2**62, (20, 30))
        assert not mismatches(lambda i: (i @ i.T, i.sum(1), i.astype("f4")), i, exact=True)


def test_tensor_without_elements_is_no_trouble() -> None:
    a, b = np.ones((0, 3), np.float32), np.ones((3, 2), np.float32)
    assert not mismatches(lambda a, b: (a @ b, a.sum(0), a.sum(1), a.T, a.reshape(0)), a, b)
    assert not mismatches(lambda a, b: (jnp.sort(a, 1), jnp.sort(a, 0), a.max(1)), a, b)
    assert not mismatches(lambda a, b: a.T @ b.T[:0], a, b)


def test_overflow_of_the_type_is_infinite() -> None:
    x = np.array([200.0, -200.0], np.float32)
    assert not mismatches(lambda x: (jnp.exp(x), 1 / (1 + jnp.exp(x))), x)


def test_what_is_masked_by_the_least_number_of_the_type_is_known() -> None:
    """It less a maximum is rounded to a finite number again, up to half a unit beyond it."""
    x, least = normal(3, 8), np.finfo(np.float32).min

    def masked(x: Array) -> Any:
        return jax.nn.softmax(jnp.where(jnp.arange(8) < 5, x, least))

    (found,) = evaluate(graph_of(masked, [x]), [x])
    assert found.bound is not None
    assert np.isfinite(found.bound).all()
    assert not mismatches(masked, x)
    less = np.array([-1.0, -2.0e31], np.float32)
    assert not mismatches(lambda less: less + least, less)


@pytest.mark.parametrize(
    "reducer, start", [(lax.add, 1.0), (lax.mul, 2.0), (lax.max, 0.0), (lax.min, -0.5)]
)
def test_a_window_begins_at_its_start_once_and_leaves_out_what_is_padded(
    reducer: Any, start: float
) -> None:
    def function(x: Array) -> Any:
        pad = ((1, 2), (0, 0))
        return lax.reduce_window(x, start, reducer, (2, 2), (1, 2), pad)

    def whole(x: Array) -> Any:
        return lax.reduce_window(x, np.int32(start + 3), reducer, (2, 2), (2, 1), "VALID")

    for f, x in (
        (function, -np.abs(normal(0, 4, 6))),
        (whole, np.arange(-12, 12, dtype=np.int32).reshape(4, 6)),
    ):
        (found,) = evaluate(graph_of(f, [x]), [x])
        np.testing.assert_allclose(found.value, np.asarray(jax.jit(f)(x)), rtol=1e-6)

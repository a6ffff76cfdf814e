"""The oracle against jax: functions, types, and values at their borders."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.oracle import evaluate
from tests.support.oracle_cases import Array, Function, graph_of, lax, mismatches, normal

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

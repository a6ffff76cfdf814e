"""Kernels that promise most for a second of tuning are opened first."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.timing.timing import FEW_S
from hlotune.search.budget.contest import Opening
from hlotune.search.budget.opening_order import FEW_CALLS, FIXED_S, cost_s, promised
from hlotune.search.default_lag import (
    FEW_ROWS_LAG,
    NARROW_LAG,
    OTHER_LAG,
    POOL_GRADIENT_LAG,
    PRODUCT_LAG,
    SEVERAL_LAG,
    default_lag,
)
from hlotune.search.tuner import Took
from tests.support.costly_device import contest
from tests.support.sessions import task


def test_a_small_product_in_a_loop_comes_before_a_huge_one_that_is_near_its_limit() -> None:
    in_a_loop = promised(1e-3, least_s=0.25e-3, weight=128)
    head = promised(90e-3, least_s=70e-3, weight=1)
    assert in_a_loop > 10 * head > 0


def test_of_two_kernels_that_cost_as_much_the_one_that_saves_more_comes_first() -> None:
    assert promised(2e-3, 1e-3, weight=2) > promised(2e-3, 1e-3, weight=1)
    assert promised(4e-3, 1e-3, weight=1) > promised(4e-3, 2e-3, weight=1)


def test_a_default_that_is_at_its_limit_promises_little_and_more_where_it_takes_longer() -> None:
    assert 0 < promised(1e-3, 1e-3, weight=1) < promised(2e-3, 2e-3, weight=1)


def test_a_kernel_costs_more_the_longer_its_calls_and_the_larger_its_operands() -> None:
    assert cost_s(0.0) == FIXED_S
    assert cost_s(0.05) < cost_s(0.05, least_s=0.02) < cost_s(0.05, least_s=0.02, size=1 << 28)
    weights = promised(10e-3, 8e-3, weight=1, size=400 << 20)
    assert weights < promised(10e-3, 8e-3, weight=1, size=10 << 20)


def test_a_default_of_long_calls_is_called_a_few_times_alone() -> None:
    assert cost_s(1.0) == pytest.approx(FIXED_S + FEW_CALLS)
    assert cost_s(FEW_S) < cost_s(0.9 * FEW_S) < FIXED_S + 34.0 * FEW_S


def test_opening_all_that_wait_is_expected_to_take_as_long_as_those_of_their_cost_did() -> None:
    tasks = [task(f"k{n}", n, weight=weight) for n, weight in enumerate((8.0, 2.0, 1.0, 1.0))]
    now_s = iter((0.0, 4.0, 4.0, 5.0))
    opening = Opening(list(tasks), lambda task: contest(0, Took()), cost_s=lambda task: task.weight)
    assert opening.all_s == 0.0
    opening.next(lambda: next(now_s))
    assert opening.all_s == pytest.approx(4.0 / 8.0 * 4.0)
    opening.next(lambda: next(now_s))
    assert opening.all_s == pytest.approx(5.0 / 10.0 * 2.0)


def test_products_of_few_rows_of_narrow_types_and_several_in_one_kernel_lag_behind() -> None:
    def product(rows: int, dtype: str = "float32") -> float:
        return lag(jnp.matmul, jnp.ones((rows, 512), dtype), jnp.ones((512, 2048), dtype))

    def attended(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.T) @ v

    assert product(20) == FEW_ROWS_LAG
    assert [product(1), product(1280)] == [PRODUCT_LAG] * 2
    assert product(1280, "bfloat16") == NARROW_LAG
    assert lag(attended, *[jnp.ones((128, 64))] * 3) == SEVERAL_LAG
    assert lag(lambda x: jnp.exp(x) + 1, jnp.ones((512, 512))) == OTHER_LAG


def test_gradients_of_maximum_pooling_lag_behind() -> None:
    def pooled(x: jax.Array) -> jax.Array:
        ahead: jax.Array = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
        return ahead

    def gradient(x: jax.Array) -> jax.Array:
        found: jax.Array = jax.grad(lambda x: pooled(x).sum())(x)
        return found

    assert lag(gradient, jnp.ones((1, 64, 64, 8))) == POOL_GRADIENT_LAG
    assert lag(pooled, jnp.ones((1, 64, 64, 8))) == OTHER_LAG


def lag(function: Callable[..., jax.Array], *arguments: jax.Array) -> float:
    """How far XLA is expected to lag behind in the first kernel of a function."""
    return default_lag(graph_of(sites(load(function, *arguments))[0].kernel))

"""What checks of long calls take is told beforehand, by some of the numbers."""

from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy import bench as bench_module
from hlotune.deploy import checking_costs
from hlotune.deploy.bench import prepared
from hlotune.deploy.checking_costs import SAMPLE, checking_s, may_fall_otherwise
from hlotune.hlo.frontends.program import Program, load

X = np.random.default_rng(1).normal(size=64).astype(np.float32)


def straight(x: Any) -> Any:
    return jnp.sin(x) * 2


def rectified(x: Any) -> Any:
    return jnp.where(x > 0.5, x, 0.1 * x)


def repeated(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, v: rectified(v), x)


@pytest.mark.parametrize(
    ("function", "may"), [(straight, False), (rectified, True), (repeated, True)]
)
def test_roundings_may_decide_where_numbers_are_compared(function: Any, may: bool) -> None:
    assert may_fall_otherwise(load(function, X).graph) is may


def test_checks_take_as_long_as_all_numbers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that each look at a part moves on by a second."""
    ticks = count()
    monkeypatch.setattr(checking_costs, "perf_counter", lambda: float(next(ticks)))
    large, small = np.zeros((4, SAMPLE), np.float32), np.zeros(SAMPLE, np.float32)
    assert checking_s(load(straight, X).graph, [small], [large, small], 7.0) == 5.0
    with_draw_s = checking_s(load(rectified, X).graph, [small, small], [large, small], 7.0)
    assert with_draw_s == 3 * 5.0 + 7.0 + 2.0


def test_nothing_is_compared_without_results() -> None:
    assert checking_s(load(straight, X).graph, [], [], 7.0) == 0.0


@pytest.fixture
def program() -> Program:
    return load(rectified, X)


@pytest.mark.parametrize(("once_s", "oracle_s", "counts"), [(0.0, 0.0, True), (0.0, 60.0, False),
                                                          (1e9, 0.0, False)])  # fmt: skip
def test_only_checks_of_long_calls_that_no_bound_decides_are_counted(
    once_s: float, oracle_s: float, counts: bool, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "ONCE_S", once_s)
    assert (prepared(program, oracle_limit_s=oracle_s).checking_s > 0) is counts

"""Gradients of pools compute what the oracle says, as first candidates and as others."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.ir.monoids import SELECTED
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called
from tests.support.windows import NCHW, POOLS, array, differences, pooled, wrong_results


def gradient(pool: Callable[..., Any], x: Any, given: Any) -> Any:
    """What comes back through a pool of x, for what is given to its results."""
    return jax.vjp(pool, x)[1](given)[0]


GRADIENTS: dict[str, Callable[..., Any]] = {
    "of the largest": partial(gradient, POOLS["max"]),
    "of the largest of NCHW": partial(gradient, partial(pooled, lax.max, sides=NCHW, step=1)),
    "of the largest of what is computed": lambda x, g: gradient(POOLS["max"], x * x, g * 2) + x,
    "of sums, in steps": partial(gradient, partial(pooled, lax.add, sides=NCHW)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_pools_are_computed_as_the_oracle_says(name: str) -> None:
    x = np.round(array(2, 9, 11, 19))
    shape = jax.eval_shape(POOLS["max"], x).shape
    if "NCHW" in name:
        shape = x.shape
    if "steps" in name:
        shape = jax.eval_shape(POOLS["max of NCHW"], x).shape
    assert wrong_results(GRADIENTS[name], x, array(*shape), configs=3) == []


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_gradients_of_other_types_are_right(dtype: Any) -> None:
    x, given = array(1, 9, 9, 5).astype(dtype), array(1, 5, 5, 5).astype(dtype)
    assert wrong_results(GRADIENTS["of the largest"], x, given) == []


def test_windows_select_as_xla_does_where_numbers_are_missing_or_equal() -> None:
    x, given = np.round(array(1, 9, 9, 4)), array(1, 5, 5, 4)
    x[0, 3, 3, 0], x[0, 4, 5, 1], x[0, 4, 4, 1], x[0, :4, :4, 2] = np.nan, np.nan, np.nan, -np.inf
    program = load(GRADIENTS["of the largest"], x, given)
    graph = graph_of(sites(program)[0].kernel)
    (found,) = called(compute_of(graph), (), [x, given])
    wanted = jax.jit(GRADIENTS["of the largest"])(x, given)
    np.testing.assert_allclose(found.reshape(x.shape), wanted, rtol=1e-6)


def test_the_second_of_equal_elements_is_not_selected() -> None:
    """A planted fault: what comes later takes the place of what is equal."""
    x, given = np.round(array(1, 9, 9, 4)), array(1, 5, 5, 4)
    graph = graph_of(sites(load(GRADIENTS["of the largest"], x, given))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x, given])
    assert differences(oracle, called(compute, (), [x, given])) == []
    stages = tuple(
        replace(s, combine=SELECTED["GT"]) if s.combine is SELECTED["GE"] else s
        for s in compute.stages
    )
    (said,) = differences(oracle, called(replace(compute, stages=stages), (), [x, given]))
    assert "of 324 elements wrong" in said


def test_elements_that_windows_select_are_found_in_order() -> None:
    """No space has the lanes of a vector along the window: NaN would be met in another order."""
    x, given = array(1, 9, 40, 1), array(1, 5, 5, 1)

    def model(x: Any, given: Any) -> Any:
        pool = partial(lax.reduce_window, init_value=-np.inf, computation=lax.max,
                       window_dimensions=(1, 3, 16, 1), window_strides=(1, 2, 8, 1),
                       padding="SAME")  # fmt: skip
        return gradient(pool, x, given)

    compute = compute_of(graph_of(sites(load(model, x, given))[0].kernel))
    space = space_of(compute, host_target())
    (stage,) = [s for s in compute.stages if s.combine is SELECTED["GE"]]
    assert not any(f.reduces for f in space.forms[stage.name])

"""Pooling computes what the oracle says, as first candidates and as others."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Affine, Const, Load
from hlotune.schedules.ir.monoids import MAX, Monoid
from tests.support.faults import extents, loading, moved
from tests.support.reductions import called
from tests.support.windows import POOLS, array, differences, pooled, wrong_results


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_computed_as_the_oracle_says(name: str) -> None:
    assert wrong_results(POOLS[name], array(2, 9, 11, 19), configs=3) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_many_schedules_of_pools_are_right(name: str) -> None:
    assert wrong_results(POOLS[name], array(2, 9, 11, 19), configs=12) == []


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32])
def test_pools_of_other_types_are_right(dtype: Any) -> None:
    x = np.asarray(np.abs(array(1, 7, 8, 5))).astype(dtype)
    assert wrong_results(lambda x: (pooled(lax.max, x), pooled(lax.add, x)), x) == []


def test_windows_of_truths_are_exact() -> None:
    def model(x: Any) -> Any:
        return lax.reduce_window(x, False, lax.bitwise_or, (1, 3, 3, 1), (1, 2, 1, 1), "SAME")

    assert wrong_results(model, array(1, 7, 8, 5, dtype=np.bool_)) == []


def test_a_nan_stays_the_largest_of_its_windows() -> None:
    x = array(1, 9, 9, 17)
    x[0, 4, 4, 3] = np.nan
    assert wrong_results(POOLS["max"], x) == []


def test_a_window_that_begins_elsewhere_stays_with_xla() -> None:
    """Compilers do not agree on how often such a start counts."""

    def model(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(2), lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")

    site = sites(load(model, array(1, 7, 8, 5)))[0]
    with pytest.raises(UnsupportedKernel, match=r"begins at what changes nothing, got 2.0 of a"):
        compute_of(graph_of(site.kernel))


def strided_by_one(x: Load) -> Load:
    """The same window, which moves on by one element along the second dimension of two."""
    index = list(x.index)
    index[2] = Affine.of({a: min(c, 1) for a, c in index[2].terms}, index[2].constant)
    return replace(x, index=tuple(index))


def at_loads(change: Callable[[Load], Load]) -> Callable[[Compute], Compute]:
    return loading("a0", change, where="reduce0")


def begun_at_zero(compute: Compute) -> Compute:
    zero = Monoid("max", 1, lambda dtypes: (Const(0.0, dtypes[0]),), MAX.merge)
    changed = at_loads(lambda x: replace(x, outside=0.0))(compute)
    return replace(changed, stages=tuple(replace(s, combine=zero) for s in changed.stages))


FAULTS: dict[str, tuple[str, Callable[[Compute], Compute], str]] = {
    "the last tap of each window is lost": (
        "max", lambda c: extents(c, {"r1": 2}),
        "359 of 1140 elements wrong, worst at (1, 0, 0, 18): expected -0.018531803"),
    "the largest begins at zero": (
        "negative", begun_at_zero,
        "1140 of 1140 elements wrong, worst at (0, 0, 0, 0): expected -1.90708065, got 0,"),
    "the border is one row off": (
        "max", at_loads(moved(1, 1)),
        "529 of 1140 elements wrong"),
    "what lies outside counts as one": (
        "sum", at_loads(lambda x: replace(x, outside=1.0)),
        "684 of 1140 elements wrong"),
    "windows stand one column apart, not two": (
        "max", at_loads(strided_by_one), "824 of 1140 elements wrong"),
}  # fmt: skip
BASES: dict[str, Callable[..., Any]] = {
    "max": POOLS["max"], "negative": lambda x: pooled(lax.max, -jnp.abs(x)),
    "sum": partial(pooled, lax.add),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_planted_in_pools_are_found(name: str) -> None:
    base, fault, says = FAULTS[name]
    x = array(2, 9, 11, 19)
    graph = graph_of(sites(load(BASES[base], x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    assert differences(oracle, called(compute, (), [x])) == []
    (said,) = differences(oracle, called(fault(compute), (), [x]))
    assert says in said


def test_cumulative_sums_are_no_windows() -> None:
    program = load(lambda x: jnp.cumsum(jnp.tanh(x), 0) * 2, array(8, 16))
    assert all(s.pattern != "window" for s in sites(program))


def test_labels_of_pools_say_their_windows() -> None:
    x = array(2, 9, 11, 19)
    named = {name: sites(load(POOLS[name], x))[0].label for name in ("max of NCHW", "average")}
    assert named == {
        "max of NCHW": "max pool 2x9x11x19 k3 s2",
        "average": "average pool 2x9x11x19 k3 s2",
    }

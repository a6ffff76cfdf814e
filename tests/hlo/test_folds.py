"""Reductions of several parts: whatever they begin at and whoever stays, lanes merge them right."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
X = np.round(3 * np.random.default_rng(1).standard_normal((6, 150))).astype(np.float32) + 0.25


def reduced(
    merge: Callable[..., Any], *starts: Any, numbers: Any = None
) -> tuple[Compute, list[Array]]:
    """The compute that reduces the rows of X, given several times; with `numbers` the second part
    is made by it.
    """

    def function(x: Any) -> Any:
        parts = [x] * len(starts)
        if numbers is not None:
            parts[1] = numbers(x)
        return lax.reduce(tuple(parts), tuple(starts), merge, (1,))

    program = load(function, X)
    site = sites(program)[0]
    return compute_of(graph_of(site.kernel)), [X]


def by_all_forms(compute: Compute, arguments: list[Array]) -> list[list[Array]]:
    """The results of the first candidate and of some drawn ones; sorted by type, floats first."""
    space = space_of(compute, host_target())
    configs = (*space.firsts(), *space.sample(2, np.random.default_rng(0)))
    found = [called(compute, space.schedule(c).steps, arguments) for c in configs]
    assert any("VectorizeReduction" in space.schedule(c).to_json() for c in configs)
    return found


def both(*names: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: tuple(f(x, y) for f, x, y in zip(names, a, b, strict=True))


def test_each_part_begins_once_at_its_own_start() -> None:
    compute, given = reduced(both(jnp.add, jnp.maximum, jnp.minimum), *map(
        np.float32, (5, -3, 2)))  # fmt: skip
    wanted = {tuple(5 + X.sum(1)), tuple(np.maximum(X.max(1), -3)), tuple(np.minimum(X.min(1), 2))}
    for found in by_all_forms(compute, given):
        assert {tuple(r.reshape(-1)) for r in found} == wanted


def stays(ahead: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The extreme as it is written in its shortest form."""

    def merge(a: Any, b: Any) -> Any:
        kept = ahead(a[0], b[0])
        return jnp.where(kept, a[0], b[0]), jnp.where(kept, a[1], b[1])

    return merge


def positions(x: Any) -> Any:
    return lax.broadcasted_iota(jnp.int32, x.shape, 1)


@pytest.mark.parametrize("most", [True, False])
def test_the_first_of_equal_values_is_found_in_lanes(most: bool) -> None:
    ahead = jnp.greater_equal if most else jnp.less_equal
    start = np.float32(-np.inf if most else np.inf)
    compute, given = reduced(stays(ahead), start, np.int32(0), numbers=positions)
    wanted = X.argmax(1) if most else X.argmin(1)
    for found in by_all_forms(compute, given):
        (numbers,) = (r for r in found if r.dtype == np.int32)
        np.testing.assert_array_equal(numbers.reshape(-1), wanted)


def test_the_first_by_numbers_that_do_not_count_is_left_to_the_default() -> None:
    with pytest.raises(UnsupportedKernel, match="by numbers that do not count them"):
        reduced(
            stays(jnp.greater_equal), np.float32(-np.inf), np.int32(0),
            numbers=lambda x: x.astype(jnp.int32) * 7,
        )  # fmt: skip


def test_a_start_that_changes_others_is_left_to_the_default() -> None:
    with pytest.raises(UnsupportedKernel, match=r"got a start of 5\.0, which changes others"):
        reduced(lambda a, b: (jnp.abs(a[0]) + jnp.abs(b[0]),), np.float32(5))

"""Stencils compute what the oracle says, as first candidates and as others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Load, map_loads
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Unroll
from tests.support.faults import moved
from tests.support.reductions import called
from tests.support.windows import array, differences, wrong_results


def total_variation(x: Any) -> Any:
    """The squares of differences along each axis, added up."""
    return sum((jnp.diff(x, axis=d) ** 2).sum() for d in range(x.ndim))


def five_points(u: Any) -> Any:
    rolled = [jnp.roll(u, by, axis) for by in (1, -1) for axis in (0, 1)]
    return u + 0.1 * (sum(rolled) - 4 * u)


def jacobi(u: Any) -> Any:
    """A step at the points inside, and zeros at the border."""
    inside = (slice(1, -1),) * u.ndim
    steps = [
        u[(*inside[:d], slice(1 + by, u.shape[d] - 1 + by), *inside[d + 1 :])]
        for d in range(u.ndim)
        for by in (1, -1)
    ]
    return jnp.pad(sum(steps) / len(steps), 1)


STENCILS: dict[str, Callable[..., Any]] = {
    "total variation": total_variation,
    "its gradient": jax.grad(total_variation),
    "five points, rolled": five_points,
    "rolled far": lambda x: jnp.roll(x, 7, 0) * jnp.roll(x, (-5, 3), (1, 0)) + x,
    "a Jacobi step": jacobi,
    "a step put into its place": lambda u: u.at[1:-1, 2:-1].set(u[:-2, 3:] + u[2:, 1:-2]),
    "a row updated": lambda u: lax.dynamic_update_slice(u * 2, -u[:1], (3, 0)) + 1,
    "differences of a function": lambda x: jnp.diff(x * x - 1, axis=1) ** 2,
    "parts beside one another": lambda x: jnp.concatenate([x[:, 3:], -x[:, :5], x * x], 1) + 1,
    "padded with ones, computed": lambda x: jnp.pad(x * 3, ((2, 1), (0, 4)), constant_values=1) - 2,
}


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_are_computed_as_the_oracle_says(name: str) -> None:
    assert wrong_results(STENCILS[name], array(21, 75), configs=3) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STENCILS)
def test_many_schedules_of_stencils_are_right(name: str) -> None:
    assert wrong_results(STENCILS[name], array(21, 75), configs=12) == []


def test_stencils_along_three_axes_are_right() -> None:
    for name in ("total variation", "its gradient", "a Jacobi step"):
        assert wrong_results(STENCILS[name], array(9, 10, 70), configs=3) == []


def test_sums_over_overlapping_slices_are_one_pass() -> None:
    compute = compute_of(graph_of(sites(load(total_variation, array(8, 9, 16)))[0].kernel))
    (stage,) = [s for s in compute.stages if s.combine]
    assert [a.extent for a in stage.reduce] == [8, 9, 16]
    assert len(stage.stores) == 3


@pytest.mark.parametrize("planes", [8, 9, 11])
def test_planes_that_no_cache_holds_are_summed_two_at_a_time(planes: int) -> None:
    x = array(planes, 10, 70)
    graph = graph_of(sites(load(total_variation, x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    space = space_of(compute, replace(host_target(), l3_bytes=1 << 10))
    steps = space.schedule(space.firsts()[0]).steps
    (stage,) = [s for s in compute.stages if s.combine]
    assert Unroll(stage.name, "r0.2") in steps
    assert differences(oracle, called(compute, steps, [x])) == []


def test_steps_of_a_stencil_are_a_kernel_each() -> None:
    def model(u: Any) -> Any:
        return five_points(five_points(five_points(u)))

    found = sites(load(model, array(64, 64)))
    assert len(found) == 3
    kept = sites(load(lambda x: jnp.diff(x * x, axis=0) ** 2, array(64, 64)))
    assert len(kept) == 1, "few operations are computed at both places"


def guard_of(change: Callable[[Load], Load]) -> Callable[[Compute], Compute]:
    def changed(s: Stage) -> Stage:
        moves = {x: change(x) for x in s.loads if x.tensor.startswith("inside")}
        assert moves
        return replace(s, values=tuple(map_loads(v, moves) for v in s.values))

    return lambda c: replace(c, stages=tuple(changed(s) if s.stores else s for s in c.stages))


SEAMS: dict[str, tuple[str, Callable[[Compute], Compute], str]] = {
    "a seam is one row off": (
        "rolled far", guard_of(moved(0, 1)), "169 of 1575 elements wrong"),
    "the border is one column narrower": (
        "a Jacobi step", guard_of(moved(1, -1)), "38 of 1575 elements wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEAMS)
def test_faults_planted_in_stencils_are_found(name: str) -> None:
    base, fault, says = SEAMS[name]
    x = array(21, 75)
    graph = graph_of(sites(load(STENCILS[base], x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    space = space_of(compute, host_target())
    steps = space.schedule(space.heuristic()).steps
    assert differences(oracle, called(compute, steps, [x])) == []
    (said,) = differences(oracle, called(fault(compute), steps, [x]))
    assert says in said

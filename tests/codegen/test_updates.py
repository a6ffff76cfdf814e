"""Updates of many arrays: one kernel, whose tasks are shared out over threads, in place."""

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.llvm.emit import emit
from hlotune.deploy.replacement import assembled, replacement
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.regions import parallel_regions
from hlotune.schedules.steps.schedule import Schedule
from tests.support.faults import edited

SHAPES = ((7, 7, 3, 16), (33,), (64,), (300, 40), (3, 3, 8, 8), (65,))


def momentum(*given: jax.Array) -> list[jax.Array]:
    """Parameters, velocities and gradients; gives the first two anew."""
    n = len(given) // 3
    velocity = [0.9 * v + g for v, g in zip(given[n : 2 * n], given[2 * n :], strict=True)]
    return [p - 0.01 * v for p, v in zip(given[:n], velocity, strict=True)] + velocity


def arrays() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for _ in range(3) for s in SHAPES]


@cache
def program() -> Program:
    given = tuple(range(2 * len(SHAPES)))
    return load(jax.jit(momentum, donate_argnums=given), *arrays())


@cache
def site() -> Site:
    return sites(program())[0]


@cache
def compute() -> Compute:
    return compute_of(graph_of(site().kernel))


def schedules() -> list[Schedule]:
    space = space_of(compute(), replace(host_target(), threads=2))
    configs = np.concatenate([space.firsts(), space.sample(2, np.random.default_rng(0))])
    assert space.size < 1e7, "stages alike have knobs in common"
    return [space.schedule(c) for c in configs[space.legal(configs)]]


def test_elementwise_groups_of_unrelated_arrays_are_one_kernel() -> None:
    names = [s.name for s in sites(program())]
    assert names == ["arrays0", *(f"elementwise{k}" for k in range(len(SHAPES)))]
    assert site().label == "6 arrays of scale+add+scale+sub 300x40"
    assert len(site().results) == 2 * len(SHAPES)
    assert len(compute().stages) == len(SHAPES)
    assert all(len(s.parallel) == 1 for s in compute().stages)


def test_arrays_that_wait_for_one_another_are_not_one_kernel() -> None:
    def chain(*given: jax.Array) -> Any:
        total, found = jnp.float32(0), []
        for x in given:
            found.append(jnp.sin(x) + total)
            total = jnp.sort(found[-1].ravel())[0]
        return found

    program = load(chain, *arrays()[: len(SHAPES)])
    assert not [s for s in sites(program) if s.name.startswith("arrays")]


def test_arrays_that_others_wait_for_are_not_one_kernel() -> None:
    def layers(*given: jax.Array) -> Any:
        return [jnp.sort(jnp.sin(x) + 1.0, 0) for x in given]

    program = load(layers, *arrays()[: len(SHAPES)])
    assert not [s for s in sites(program) if s.name.startswith("arrays")]


def test_one_region_has_the_tasks_of_all_arrays_and_agrees_with_the_oracle() -> None:
    for k, schedule in enumerate(schedules()):
        nest = replay(compute(), schedule, host_target())
        assert [len(region) for region in parallel_regions(nest)] == [len(SHAPES)]
        built = build(compute(), schedule, host_target())
        verdict = verify(site().kernel, built, thorough=k == 0)
        assert isinstance(verdict, Verdict), verdict


def test_tasks_of_large_arrays_are_short_and_store_through_the_caches() -> None:
    large = [np.zeros((1024, 1024), np.float32)] * 12
    found = compute_of(graph_of(sites(load(momentum, *large))[0].kernel))
    space = space_of(found, replace(host_target(), threads=2))
    configs = np.concatenate([space.firsts(), space.sample(8, np.random.default_rng(0))])
    for schedule in map(space.schedule, configs[space.legal(configs)]):
        nest = replay(found, schedule, host_target())
        assert not any(s.non_temporal for s in nest.stages)
        steps = [loop.step for s in nest.stages for loop in s.loops if loop.kind == "parallel"]
        assert max(steps) <= 1 << 18


def test_the_largest_array_says_how_long_tasks_are_and_threads_have_equally_much_to_do() -> None:
    shapes = [(64,)] * 60 + [(1024, 1024)] * 2 + [(512, 512)]
    arrays = [np.zeros(s, np.float32) for _ in range(3) for s in shapes]
    found = compute_of(graph_of(sites(load(momentum, *arrays))[0].kernel))
    space = space_of(found, replace(host_target(), threads=2))
    sizes: list[int] = []
    for s in replay(found, space.schedule(space.firsts()[0]), host_target()).stages:
        step = max(loop.step for loop in s.loops if loop.kind == "parallel")
        sizes += [min(step, s.stage.points - k) for k in range(0, s.stage.points, step)]
    assert max(sizes) == 1024
    first_thread = sum(sizes[: len(sizes) // 2])
    assert first_thread == pytest.approx(sum(sizes) / 2, rel=0.03)


def test_results_lie_in_donated_arrays() -> None:
    built = build(compute(), schedules()[0], host_target())
    run = assembled(program(), [replacement(program(), site(), built)], host_target())
    given = [jnp.array(x) for x in arrays()]
    before = [x.unsafe_buffer_pointer() for x in given[: 2 * len(SHAPES)]]
    results = run(*given)
    assert [x.unsafe_buffer_pointer() for x in results] == before
    for got, wanted in zip(results, momentum(*arrays()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


FAULTS = {
    "an array is skipped": edited(r"call void @stage_2\([^\n]*", "", count=1),
    "the tasks of an array begin one too late": edited(
        r"(sub i64 %begin), (?!0\b)\d+", r"\1, -1", count=1
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    target, schedule = host_target(), schedules()[0]
    emitted = emit(replay(compute(), schedule, target))
    code = compile_object(FAULTS[fault](emitted.text), target)
    failure = verify(site().kernel, Built(code, emitted.scratch_bytes, (), 0, target.threads))
    assert isinstance(failure, Failure)
    assert "unwritten" in failure.message

"""The space of computes without a contraction: its schedules compute what the stages say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.row_kernels import (
    OF_ROWS,
    over_all,
    over_columns,
    over_rows,
    softmax,
)
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.monoids import AND, MAX, MIN, OR, PROD, SUM
from hlotune.schedules.patterns.rows import is_rows
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from tests.support.computes import gemm
from tests.support.row_spaces import KERNELS, check, grouped, rows_space

EXTENTS = st.sampled_from([1, 2, 3, 7, 16, 31, 33, 64, 97])
INTEGERS = ("i8", "i32", "i64", "ui8")


@pytest.mark.parametrize("name", KERNELS)
def test_first_candidates_of_all_sketches_compute_what_the_stages_say(name: str) -> None:
    compute = KERNELS[name]
    space = rows_space(compute)
    for k in range(len(space.sketches)):
        config = space.heuristic().copy()
        config[0] = k
        check(compute, space, config)


@given(st.sampled_from(sorted(KERNELS)), st.integers(0, 1 << 30))
def test_any_config_computes_what_the_stages_say(name: str, seed: int) -> None:
    compute = KERNELS[name]
    space = rows_space(compute)
    check(compute, space, space.sample(1, np.random.default_rng(seed))[0])


@given(
    st.sampled_from(sorted(OF_ROWS)), EXTENTS, EXTENTS, st.sampled_from(["f32", "f64"]),
    st.integers(0, 1 << 30),
)  # fmt: skip
def test_any_extents_and_wide_floats(
    name: str, rows: int, columns: int, dtype: str, seed: int
) -> None:
    compute = OF_ROWS[name](rows, columns, dtype)
    space = rows_space(compute)
    check(compute, space, space.heuristic())
    check(compute, space, space.sample(1, np.random.default_rng(seed))[0])


@given(
    st.sampled_from(["transpose", "over_rows", "over_columns", "biased"]), EXTENTS, EXTENTS,
    st.sampled_from(INTEGERS), st.integers(0, 1 << 30),
)  # fmt: skip
def test_integers_are_exact(name: str, rows: int, columns: int, dtype: str, seed: int) -> None:
    compute = OF_ROWS[name](rows, columns, dtype)
    space = rows_space(compute)
    check(compute, space, space.heuristic())
    check(compute, space, space.sample(1, np.random.default_rng(seed))[0])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8", "ui8", "i64", "i1", "bf16", "f16"])
def test_transposes_of_all_types(dtype: str) -> None:
    compute = OF_ROWS["transpose"](65, 130, dtype)
    check(compute, rows_space(compute), rows_space(compute).heuristic())


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8", "i1"])
@pytest.mark.parametrize("monoid", [SUM, PROD, MAX, MIN, AND, OR], ids=str)
def test_reductions_by_any_monoid_over_any_axis(monoid: Any, dtype: str) -> None:
    if is_float(dtype) and monoid in (AND, OR):
        return
    for compute in (
        over_rows(21, 37, dtype, monoid),
        over_columns(21, 37, dtype, monoid),
        over_all(777, dtype, monoid),
    ):
        check(compute, rows_space(compute), rows_space(compute).heuristic())


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_what_is_legal_replays_and_the_rest_does_not(name: str, target: Any) -> None:
    space = rows_space_of(KERNELS[name], target)
    rng = np.random.default_rng(0)
    configs = rng.integers(space.counts, size=(6, len(space.counts))).astype(np.int32)
    legal = space.legal(configs)
    for config, good in zip(configs, legal, strict=True):
        try:
            replay(space.compute, space.schedule(config), target)
        except ScheduleError:
            assert not good
        else:
            assert good


@pytest.mark.parametrize("name", KERNELS)
def test_neighbours_are_legal_and_differ(name: str) -> None:
    space, rng = rows_space(KERNELS[name]), np.random.default_rng(0)
    configs = space.sample(64, rng)
    moved = space.neighbours(configs, rng)
    assert space.legal(moved).all()
    assert (moved != configs).any(axis=1).mean() > 0.9


@pytest.mark.parametrize(("isa", "fewest"), [("x86-64-v3", 23), ("znver4", 22)])
@pytest.mark.parametrize("name", KERNELS)
def test_schedules_are_located_where_they_came_from(name: str, isa: str, fewest: int) -> None:
    """Sizes that an axis or a body cut down are found too, but for a few of 25 that no knob has."""
    space, rng = rows_space_of(KERNELS[name], TARGETS[isa]), np.random.default_rng(0)
    configs = [space.heuristic(), *space.sample(24, rng)]
    same = 0
    for config in configs:
        schedule = space.schedule(config)
        found = space.locate(schedule)
        assert found is not None
        assert space.legal(found[None])[0]
        same += space.schedule(found) == schedule
    assert same >= fewest


@pytest.mark.parametrize("name", KERNELS)
def test_equal_nests_have_equal_digests_and_features(name: str) -> None:
    space, rng = rows_space(KERNELS[name]), np.random.default_rng(0)
    configs = space.sample(64, rng)
    digests, features = space.digest(configs), space.features(configs)
    nests = [str(replay(space.compute, space.schedule(c), host_target())) for c in configs]
    first: dict[str, int] = {}
    for k, nest in enumerate(nests):
        same = first.setdefault(nest, k)
        assert digests[k] == digests[same]
        np.testing.assert_allclose(features[k], features[same], rtol=1e-4, atol=1e-4)


def test_products_of_matrices_are_no_rows_and_keep_their_space() -> None:
    case = gemm(7, 9, 11)
    assert not is_rows(case.compute)
    assert not isinstance(space_of(case.compute, host_target()), RowsSpace)


def test_searches_are_given_a_rows_space_by_its_compute() -> None:
    space = space_of(softmax(16, 64), host_target())
    parts = space.parts if isinstance(space, AlgorithmsSpace) else (space,)
    assert any(isinstance(p, RowsSpace) for p in parts)


def test_results_that_other_stages_read_are_what_the_stages_say() -> None:
    compute = KERNELS["layer_norm"]
    tensors = (
        replace(t, role="result") if t.name in ("mean", "root") else t for t in compute.tensors
    )
    compute = replace(compute, tensors=tuple(tensors))
    space = rows_space(compute)
    for k in range(len(space.sketches)):
        config = space.heuristic().copy()
        config[0] = k
        check(compute, space, config)


def test_groups_of_channels_that_lie_together_are_what_the_stages_say() -> None:
    compute = grouped(2, 35, 6, 5)
    space = rows_space(compute)
    for config in (space.heuristic(), *space.sample(4, np.random.default_rng(0))):
        check(compute, space, config)

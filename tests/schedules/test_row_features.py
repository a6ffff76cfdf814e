"""What models see of kernels without a contraction, and the least time of one."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.row_kernels import (
    OF_ROWS,
    softmax,
)
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.features.loop_trees import COLUMN as NODE_COLUMN
from hlotune.schedules.features.summary import COLUMN
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.patterns.row_limit import least_seconds, moved_bytes, operations_of
from tests.support.recorded import PROPERTIES
from tests.support.row_spaces import KERNELS, rows_space


@pytest.mark.parametrize("name", KERNELS)
def test_features_and_trees_are_finite(name: str) -> None:
    space, rng = rows_space(KERNELS[name]), np.random.default_rng(0)
    configs = space.sample(64, rng)
    assert np.isfinite(space.features(configs)).all()
    assert np.isfinite(space.nodes(configs).values).all()


def test_the_limit_counts_what_must_move_and_no_more() -> None:
    bytes_of = {"transpose": 2 * 33 * 70 * 4, "over_rows": (129 * 33 + 33) * 4,
                "softmax": 2 * 19 * 70 * 4}  # fmt: skip
    for name, wanted in bytes_of.items():
        assert moved_bytes(KERNELS[name]) == wanted


@pytest.mark.parametrize("name", KERNELS)
def test_the_limit_is_below_any_rate_that_the_peaks_allow(name: str) -> None:
    compute, target = KERNELS[name], TARGETS["znver4"]
    limit = least_seconds(compute, target, PROPERTIES)
    assert 0 < limit < sum(s.points * 100 for s in compute.stages) / PROPERTIES.clock_hz
    faster = replace(PROPERTIES, clock_hz=2 * PROPERTIES.clock_hz)
    assert least_seconds(compute, target, faster) <= limit


def test_transcendental_operations_count_for_several() -> None:
    smooth, plain = OF_ROWS["gelu"](512, 512), OF_ROWS["biased"](512, 512)
    assert operations_of(smooth.stages[0]) > 2 * operations_of(plain.stages[0])


def test_sums_over_several_axes_have_features_whatever_axis_the_lanes_run_along() -> None:
    i, j, k = Axis("i", 6), Axis("j", 5), Axis("k", 40)
    index = tuple(map(Affine.axis, "ijk"))
    stage = Stage("all", (i,), (j, k), (Store("y0", index[:1]),), (Load("a0", index, "f32"),), SUM)
    tensors = Tensor("a0", (6, 5, 40), "f32", "argument"), Tensor("y0", (6,), "f32", "result")
    space = rows_space(Compute(tensors, (stage,)))
    drawn = space.sample(64, np.random.default_rng(0))
    forms = {space.forms["all"][f].vector for f in space.values(drawn, "form", "all")}
    assert forms == {"i", "j", "k"}
    assert np.isfinite(space.features(drawn)).all()


def test_a_kernel_without_a_multiply_add_costs_more_where_lanes_lie_apart_or_cores_idle() -> None:
    space = rows_space(OF_ROWS["biased"](256, 512))
    configs = space.sample(256, np.random.default_rng(0))
    total = space.features(configs)[:, COLUMN["cost_total"]]
    forms = [space.forms["out"][f].vector for f in space.values(configs, "form", "out")]
    apart, near = (np.array([v == axis for v in forms]) for axis in "ij")
    assert np.median(total[apart]) > 1 + np.median(total[near])


def test_each_stage_that_costs_has_columns_and_a_tree_of_its_own() -> None:
    space = rows_space(softmax(64, 512))
    configs = space.sample(64, np.random.default_rng(0))
    row, trees = space.features(configs), space.nodes(configs)
    shares = [f"{k}_share" for k in ("main", "stage1", "stage2", "stage3")]
    total = np.exp2(row[:, [COLUMN[name] for name in shares]]).sum(axis=1)
    np.testing.assert_allclose(total, 1, atol=1e-3)  # max, exp, sum and divide are all there is
    roots = (trees.parent == 0) & (trees.values[:, :, NODE_COLUMN["is_root"]] == 1)
    assert (roots.sum(axis=1) == 4).all()
    total_cost = NODE_COLUMN["cost_total"]
    np.testing.assert_allclose(trees.values[:, 0, total_cost], row[:, COLUMN["cost_total"]],
                               atol=1e-3)  # fmt: skip


def test_what_stages_of_one_iteration_hand_over_stays_in_the_caches_that_hold_it() -> None:
    space = rows_space(softmax(512, 1024))
    apart = space.heuristic().copy()
    apart[0] = len(space.sketches) - 1
    together, alone = space.features(np.stack([space.heuristic(), apart]))
    for name in ("cost_l2", "cost_l3"):
        assert together[COLUMN[name]] < alone[COLUMN[name]]

"""The space of computes without a contraction: its schedules compute what the stages say."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from benchmarks.row_kernels import (
    OF_ROWS,
    centred_columns,
    heads,
    over_all,
    over_columns,
    over_rows,
    softmax,
)
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.partial_reductions.rewriting import PartialReductions
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_trees import COLUMN as NODE_COLUMN
from hlotune.schedules.features.summary import COLUMN
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Load
from hlotune.schedules.ir.monoids import AND, MAX, MIN, OR, PROD, SUM
from hlotune.schedules.patterns.row_limit import least_seconds, moved_bytes, operations_of
from hlotune.schedules.patterns.rows import is_rows
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.steps import AddUp, ComputeAt, Split
from tests.support.computes import gemm
from tests.support.interpreter import interpret
from tests.support.recorded import PROPERTIES
from tests.support.reductions import called

EXTENTS = st.sampled_from([1, 2, 3, 7, 16, 31, 33, 64, 97])
INTEGERS = ("i8", "i32", "i64", "ui8")


def shifted(rows: int, columns: int) -> Compute:
    """The row above where there is one, and the next element: loads leave along both axes."""
    row, column = Affine.axis("i"), Affine.axis("j")
    above, here = Load("a0", (row + -1, column), "f32"), Load("inside", (row + -1,), "i1")
    chosen = Apply("select", (here, above, Const(2.0, "f32")), "f32")
    value = Apply("add", (chosen, Load("a0", (row, column + 1), "f32")), "f32")
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), (), (Store("y0", (row, column)),),
                  (value,))  # fmt: skip
    shape = (rows, columns)
    tensors = (Tensor("a0", shape, "f32", "argument"), Tensor("y0", shape, "f32", "result"),
               Tensor("inside", (rows - 1,), "i1", "guard"))  # fmt: skip
    return Compute(tensors, (stage,))


def grouped(images: int, positions: int, groups: int, channels: int) -> Compute:
    """Each element less the sum of its group: channels that lie together, at all positions."""
    image, group, position, channel = map(Affine.axis, "igpc")
    place = (image, position, group * channels + channel)
    x, total = Load("a0", place, "f32"), Load("t", (image, group), "f32")
    outer, inner = (
        (Axis("i", images), Axis("g", groups)),
        (Axis("p", positions), Axis("c", channels)),
    )
    summed = Stage("sum", outer, inner, (Store("t", (image, group)),), (x,), SUM)
    less = Apply("subtract", (x, total), "f32")
    axes = (outer[0], inner[0], outer[1], inner[1])
    out = Stage("out", axes, (), (Store("y0", place),), (less,))
    shape = (images, positions, groups * channels)
    tensors = (Tensor("a0", shape, "f32", "argument"), Tensor("y0", shape, "f32", "result"),
               Tensor("t", (images, groups), "f32", "temporary"))  # fmt: skip
    return Compute(tensors, (summed, out))


KERNELS = {
    "shifted": shifted(19, 71),
    "softmax": OF_ROWS["softmax"](19, 70), "layer_norm": OF_ROWS["layer_norm"](21, 33),
    "over_columns": over_columns(33, 129), "over_rows": over_rows(129, 33),
    "over_all": over_all(1023), "argmax": OF_ROWS["argmax"](7, 131),
    "transpose": OF_ROWS["transpose"](33, 70), "heads": heads(5, 7, 19),
    "biased": OF_ROWS["biased"](31, 97), "centred_columns": OF_ROWS["centred_columns"](37, 41),
    "one row": softmax(1, 7), "one column": softmax(5, 1), "one element": softmax(1, 1),
}  # fmt: skip


def drawn(compute: Compute, seed: int = 0) -> list[NDArray[Any]]:
    """Small integers, or in floats normal numbers; tables of numbers count."""
    rng, found = np.random.default_rng(seed), []
    for t in compute.arguments:
        kind = numpy_dtype(t.dtype)
        if t.dtype == "i32" and t.name == "a1":
            values: NDArray[Any] = np.arange(t.elements)
        elif is_float(t.dtype):
            values = rng.standard_normal(t.shape)
        else:
            values = rng.integers(0, 2 if t.dtype == "i1" else 4, t.shape)
        found.append(values.reshape(t.shape).astype(kind))
    return found


def agree(compute: Compute, found: list[NDArray[Any]], wanted: list[NDArray[Any]]) -> None:
    for t, a, b in zip(compute.results, found, wanted, strict=True):
        if is_float(t.dtype):
            tolerance = {"f64": 1e-11, "f32": 3e-5}.get(t.dtype, 0.04)
            wide: NDArray[np.float64] = b.astype(np.float64)
            near = np.testing.assert_allclose
            near(a.astype(np.float64), wide, rtol=tolerance, atol=20 * tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def rows_space(compute: Compute) -> RowsSpace:
    return rows_space_of(compute, host_target())


def check(compute: Compute, space: RowsSpace, config: NDArray[np.int32]) -> None:
    arguments = drawn(compute)
    found = called(compute, space.schedule(config).steps, arguments)
    agree(compute, found, interpret(compute, arguments))


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


@pytest.mark.parametrize("name", KERNELS)
def test_schedules_are_located_where_they_came_from(name: str) -> None:
    """Sizes that an axis or a body cut down are found too, but for a few that no knob has."""
    space, rng = rows_space(KERNELS[name]), np.random.default_rng(0)
    configs = [space.heuristic(), *space.sample(24, rng)]
    same = 0
    for config in configs:
        schedule = space.schedule(config)
        found = space.locate(schedule)
        assert found is not None
        assert space.legal(found[None])[0]
        same += space.schedule(found) == schedule
    assert same >= 0.9 * len(configs)


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


@pytest.mark.parametrize("name", KERNELS)
def test_features_and_trees_are_finite(name: str) -> None:
    space, rng = rows_space(KERNELS[name]), np.random.default_rng(0)
    configs = space.sample(64, rng)
    assert np.isfinite(space.features(configs)).all()
    assert np.isfinite(space.nodes(configs).values).all()


def test_products_of_matrices_are_no_rows_and_keep_their_space() -> None:
    case = gemm(7, 9, 11)
    assert not is_rows(case.compute)
    assert not isinstance(space_of(case.compute, host_target()), RowsSpace)


def test_searches_are_given_a_rows_space_by_its_compute() -> None:
    space = space_of(softmax(16, 64), host_target())
    parts = space.parts if isinstance(space, AlgorithmsSpace) else (space,)
    assert any(isinstance(p, RowsSpace) for p in parts)


@pytest.mark.parametrize("monoid", [SUM, MAX, MIN], ids=str)
@pytest.mark.parametrize("dtype", ["f32", "i32"])
def test_reductions_of_few_results_are_merged_in_parts(monoid: Any, dtype: str) -> None:
    for compute in (over_all(1 << 12, dtype, monoid), over_columns(3, 1 << 12, dtype, monoid)):
        target, arguments = host_target(), drawn(compute)
        parted = PartialReductions(2)(compute)
        assert parted.stages[0].extents["p0"] == 2
        agree(compute, interpret(parted, arguments), interpret(compute, arguments))
        space = rows_space_of(parted, target)
        check(parted, space, space.heuristic())


def test_short_reductions_have_no_parts_and_some_have_more_than_are_asked_for() -> None:
    with pytest.raises(ScheduleError, match="expected a reduction of at most 1024 results and at"):
        PartialReductions(2)(over_all(1999))
    thrice = PartialReductions(2)(over_all(3**8))
    assert thrice.stages[0].extents["p0"] == 3


@pytest.mark.parametrize("monoid", [SUM, MIN], ids=str)
def test_what_parts_leave_of_a_prime_length_is_merged_with_them(monoid: Any) -> None:
    for compute in (over_all(4099, "f32", monoid), over_columns(3, 4099, "i32", monoid)):
        parted, arguments = PartialReductions(2)(compute), drawn(compute)
        assert [s.name for s in parted.stages] == ["all.parts", "all.rest", "all.most", "all"]
        agree(compute, interpret(parted, arguments), interpret(compute, arguments))
        space = rows_space_of(parted, host_target())
        check(parted, space, space.heuristic())


def test_the_parts_of_an_argmax_keep_its_first_index() -> None:
    compute = OF_ROWS["argmax"](3, 4099)
    parted = PartialReductions(2)(compute)
    x = np.zeros((3, 4099), np.float32)
    x[0, [17, 4098]], x[1, 4098], x[2, [4000, 9]] = 5, 5, 5
    numbers = np.arange(4099, dtype=np.int32)
    found = called(parted, rows_space_of(parted, host_target()).schedule(
        rows_space_of(parted, host_target()).heuristic()).steps, [x, numbers])  # fmt: skip
    np.testing.assert_array_equal(found[1], [17, 4098, 9])


def test_a_kernel_of_one_result_begins_with_parts_on_several_threads() -> None:
    target = replace(host_target(), threads=2)
    space = space_of(over_all(1 << 16), target)
    assert isinstance(space, AlgorithmsSpace)
    first = space.schedule(space.heuristic())
    assert first.algorithm == "partial_reductions(2)"
    assert space.locate(first) is not None
    many = space_of(over_columns(64, 1 << 12), target)
    assert not isinstance(many, AlgorithmsSpace)


def test_columns_of_one_register_tile_are_summed_in_parts_that_stand_alone() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    space = space_of(centred_columns(1 << 13, 64), target)
    assert isinstance(space, AlgorithmsSpace)
    first = space.schedule(space.heuristic())
    assert first.algorithm == "partial_reductions(2)"
    assert not any(isinstance(s, ComputeAt) for s in first.steps)
    wide = space_of(centred_columns(1 << 13, 1 << 10), target)
    assert not isinstance(wide, AlgorithmsSpace)


def test_rows_that_an_iteration_takes_stay_in_the_first_cache_with_all_that_is_read() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    for columns, rows in ((64, 8), (768, 2), (1 << 14, 1)):
        space = rows_space_of(OF_ROWS["layer_norm"](512, columns), target)
        placed = next(p for p, _ in space.groups(space.firsts()) if p.stage.name == "out")
        assert placed.block["i"].item() == rows


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("columns", [24, 96, 640, 768, 1000, 32000])
def test_the_lanes_of_a_first_reduction_are_a_power_of_two(columns: int, target: Any) -> None:
    compute = softmax(512, columns)
    space = rows_space_of(compute, target)
    nest = replay(compute, space.schedule(space.heuristic()), target)
    for s in (nest.stage("top"), nest.stage("sum")):
        assert not s.reduces_lanes or s.lanes & (s.lanes - 1) == 0 or s.lanes == columns


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


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "log_softmax"])
def test_the_first_sketch_of_rows_that_fit_reads_them_in_one_nest(name: str) -> None:
    space = rows_space(OF_ROWS[name](512, 1024))
    (nest,) = space.sketches[0]
    assert nest.rows == ("i",)


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


@pytest.mark.parametrize("case", [over_rows(8192, 16), over_all(1 << 20)], ids=["columns", "all"])
def test_the_error_of_a_long_sum_does_not_grow_with_its_length(case: Compute) -> None:
    """Equal terms are rounded the same way over and over again, in one long chain."""
    x = np.full(case.arguments[0].shape, 0.1, np.float32)
    space = rows_space_of(case, host_target())
    (found,) = called(case, space.schedule(space.heuristic()).steps, [x])
    exact = float(np.float32(0.1)) * x.size / found.size
    np.testing.assert_allclose(found, exact, rtol=2e-5)


def test_long_sums_are_pieces_where_another_stage_computes_them_too() -> None:
    columns = over_rows(8192, 64)
    (total,) = columns.stages
    kept = replace(total, stores=(replace(total.stores[0], tensor="t"),))
    twice = Apply("add", (Load("t", total.stores[0].index, "f32"),) * 2, "f32")
    out = Stage("out", total.parallel, (), total.stores, (twice,))
    compute = Compute((*columns.tensors, Tensor("t", (64,), "f32", "temporary")), (kept, out))
    steps = rows_space_of(compute, host_target())
    assert AddUp("all") in steps.schedule(steps.heuristic()).steps


@pytest.mark.parametrize(("images", "together"), [(8, 32), (1, 16)])
def test_pieces_of_rows_that_lie_together_are_read_together_by_as_many_threads(
    images: int, together: int
) -> None:
    space = rows_space_of(grouped(images, 64, 32, 8), TARGETS["znver4"])
    steps = space.schedule(space.heuristic()).steps
    splits = {(s.stage, s.axis): s.factors for s in steps if isinstance(s, Split)}
    tiles, rows = splits["out", "g"][-2:]
    assert tiles * rows == together
    assert splits["sum", "g"][-1] == 8, "sums side by side hide the latency of each"
    assert splits["sum", "c"][-1] == splits["out", "c"][-1] == 8, "no lane lies behind the group"


def test_groups_of_channels_that_lie_together_are_what_the_stages_say() -> None:
    compute = grouped(2, 35, 6, 5)
    space = rows_space(compute)
    for config in (space.heuristic(), *space.sample(4, np.random.default_rng(0))):
        check(compute, space, config)


@pytest.mark.parametrize(("target", "long"), [("znver4", 2048), ("x86-64-v3", 256)])
def test_long_rows_are_reduced_alone_wide_vectors_from_more_of_them_on(
    target: str, long: int
) -> None:
    """From 128 vectors of 64 bytes on, and from 32 of 32 bytes."""
    for columns, rows in ((long, 1), (long // 2, 2)):
        space = rows_space_of(softmax(512, columns), TARGETS[target])
        assert space.values(space.heuristic()[None], "rows", "top")[0] == rows

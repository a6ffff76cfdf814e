"""What first candidates of kernels without a contraction read together, and keep in caches."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import (
    OF_ROWS,
    over_rows,
    softmax,
)
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.steps import AddUp, Split
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.interpreter import interpret
from tests.support.reductions import called
from tests.support.row_spaces import grouped, rows_space


def test_rows_that_an_iteration_takes_stay_in_the_first_cache_with_all_that_is_read() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    for columns, rows in ((64, 8), (768, 2), (1 << 16, 1)):
        space = rows_space_of(OF_ROWS["layer_norm"](512, columns), target)
        placed = next(p for p, _ in space.groups(space.firsts()) if p.stage.name == "out")
        assert placed.block["i"].item() == rows


def rows_of_an_iteration(compute: Compute, target: CpuTarget) -> int:
    space = rows_space_of(compute, target)
    placed = next(p for p, _ in space.groups(space.firsts()) if p.stage.name == "out")
    return int(placed.block["i"].item())


def test_two_long_rows_that_are_scaled_alike_are_written_out_together() -> None:
    """Where the second cache has room for both, and with vectors of 64 bytes alone."""
    target = replace(TARGETS["znver4"], threads=2)
    for name in ("layer_norm", "rms_norm"):
        assert rows_of_an_iteration(OF_ROWS[name](64, 32000), target) == 2
        assert rows_of_an_iteration(OF_ROWS[name](64, 64000), target) == 1, "no room"
        assert rows_of_an_iteration(OF_ROWS[name](3, 32000), target) == 1, "one for a thread"
        assert rows_of_an_iteration(OF_ROWS[name](512, 32000), target) == 1, "no cache keeps them"
        assert rows_of_an_iteration(OF_ROWS[name](5, 32000), target) == 1, "four and one, not three"
        assert rows_of_an_iteration(OF_ROWS[name](7, 32000), target) == 2, "four and three"
        many = replace(target, threads=16)
        assert rows_of_an_iteration(OF_ROWS[name](40, 32000), many) == 1, "four, not three"
    for name in ("softmax", "log_softmax"):
        assert rows_of_an_iteration(OF_ROWS[name](64, 32000), target) == 1, "nothing is shared"
    shorter = replace(TARGETS["x86-64-v3"], threads=2)
    assert rows_of_an_iteration(OF_ROWS["layer_norm"](64, 32000), shorter) == 1


def scaled_rows(batches: int, rows: int) -> Compute:
    """Rows of 32,000 elements of so many batches, times their sum and a number for each column."""
    b, i, j = map(Affine.axis, "bij")
    x, total = Load("a0", (b, i, j), "f32"), Load("t", (b, i), "f32")
    outer = Axis("b", batches), Axis("i", rows)
    summed = Stage("sum", outer, (Axis("j", 32000),), (Store("t", (b, i)),), (x,), SUM)
    product = Apply("multiply", (total, Load("a1", (j,), "f32")), "f32")
    scaled = Apply("multiply", (x, product), "f32")
    out = Stage("out", (*outer, Axis("j", 32000)), (), (Store("y0", (b, i, j)),), (scaled,))
    return Compute(
        (Tensor("a0", (batches, rows, 32000), "f32", "argument"),
         Tensor("a1", (32000,), "f32", "argument"),
         Tensor("t", (batches, rows), "f32", "temporary"),
         Tensor("y0", (batches, rows, 32000), "f32", "result")),
        (summed, out),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("batches", "rows", "pairs"), [(8, 8, True), (8, 2, False), (4, 10, False), (16, 3, False)]
)
def test_rows_of_all_batches_are_counted_where_long_ones_are_taken_together(
    batches: int, rows: int, pairs: bool
) -> None:
    """By 16 threads: 64 rows are two pairs each, 16 one row each; 40 would be four at most in place
    of three, and 48 of which one in three has no neighbour four too."""
    space = rows_space_of(scaled_rows(batches, rows), replace(TARGETS["znver4"], threads=16))
    found = space.values(space.heuristic()[None], "rows", "out")[0]
    assert found == (2 if pairs else 1)


@pytest.mark.parametrize("rows", [4, 7])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_long_rows_together_are_what_they_are_alone_also_the_last_of_an_odd_number(
    name: str, rows: int
) -> None:
    compute, rng = OF_ROWS[name](rows, 9216), np.random.default_rng(0)
    given = [rng.standard_normal(t.shape, dtype=np.float32) for t in compute.arguments]
    target = replace(host_target(), threads=2)
    assert rows_of_an_iteration(compute, target) == (2 if target.has_wide_vectors else 1)
    space = rows_space_of(compute, target)
    found = called(compute, space.schedule(space.heuristic()).steps, given)
    np.testing.assert_allclose(found[0], interpret(compute, given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("columns", [24, 96, 640, 768, 1000, 32000])
def test_the_lanes_of_a_first_reduction_are_a_power_of_two(columns: int, target: Any) -> None:
    compute = softmax(512, columns)
    space = rows_space_of(compute, target)
    nest = replay(compute, space.schedule(space.heuristic()), target)
    for s in (nest.stage("top"), nest.stage("sum")):
        assert not s.reduces_lanes or s.lanes & (s.lanes - 1) == 0 or s.lanes == columns


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "log_softmax"])
def test_the_first_sketch_of_rows_that_fit_reads_them_in_one_nest(name: str) -> None:
    space = rows_space(OF_ROWS[name](512, 1024))
    (nest,) = space.sketches[0]
    assert nest.rows == ("i",)


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


@pytest.mark.parametrize(("target", "long"), [("znver4", 2048), ("x86-64-v3", 256)])
def test_long_rows_are_reduced_alone_wide_vectors_from_more_of_them_on(
    target: str, long: int
) -> None:
    """From 128 vectors of 64 bytes on, and from 32 of 32 bytes."""
    for columns, rows in ((long, 1), (long // 2, 2)):
        space = rows_space_of(softmax(512, columns), TARGETS[target])
        assert space.values(space.heuristic()[None], "rows", "top")[0] == rows

"""Reductions of few results are merged in parts, one a thread."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import (
    OF_ROWS,
    centred_columns,
    over_all,
    over_columns,
    over_rows,
)
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.partial_reductions.rewriting import PartialReductions
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.monoids import MAX, MIN, SUM
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.steps import ComputeAt
from tests.support.interpreter import interpret
from tests.support.reductions import called
from tests.support.row_spaces import agree, check, drawn


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


@pytest.mark.parametrize("case", [over_rows(8192, 16), over_all(1 << 20)], ids=["columns", "all"])
def test_the_error_of_a_long_sum_does_not_grow_with_its_length(case: Compute) -> None:
    """Equal terms are rounded the same way over and over again, in one long chain."""
    x = np.full(case.arguments[0].shape, 0.1, np.float32)
    space = rows_space_of(case, host_target())
    (found,) = called(case, space.schedule(space.heuristic()).steps, [x])
    exact = float(np.float32(0.1)) * x.size / found.size
    np.testing.assert_allclose(found, exact, rtol=2e-5)

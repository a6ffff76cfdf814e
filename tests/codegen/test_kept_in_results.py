"""Temporaries that lie where a result is written over them."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.row_kernels import log_softmax, softmax
from hlotune.codegen.llvm import buffers
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.in_place import in_place
from hlotune.schedules.ir.kept_in_results import holds_temporary, result_around
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.reductions import called


def first(compute: Compute, target: CpuTarget) -> Schedule:
    space = space_of(compute, target)
    return space.schedule(space.heuristic())


def nest_of(compute: Compute, isa: str = "znver4") -> LoopNest:
    target = TARGETS[isa]
    return replay(compute, first(compute, target), target)


def test_exponentials_of_long_rows_lie_where_their_quotients_go() -> None:
    nest = nest_of(softmax(64, 32000))
    found = result_around(nest, nest.stage("e"))
    assert found is not None
    assert found.name == "y0"
    assert holds_temporary(nest, found)
    assert emit(nest).scratch_bytes < 32000 * 4


def test_rows_that_the_first_cache_holds_have_their_own_place_where_registers_are_few() -> None:
    nest = nest_of(softmax(512, 1024), "x86-64-v3")
    assert result_around(nest, nest.stage("e")) is None
    nest = nest_of(softmax(512, 1024))
    found = result_around(nest, nest.stage("e"))
    assert found is not None
    assert found.name == "y0"


@pytest.mark.parametrize(("isa", "rows"), [("znver4", 2), ("x86-64-v3", 1)])
def test_two_rows_of_a_softmax_are_taken_together_where_one_place_is_less(
    isa: str, rows: int
) -> None:
    nest = nest_of(softmax(512, 1024), isa)
    inside = next(x for x in nest.stage("out").loops if x.root == "i" and x.kind == "serial")
    assert inside.step == rows


def test_results_that_pass_the_caches_hold_nothing_else() -> None:
    nest = nest_of(softmax(1024, 32000))
    assert nest.stage("out").non_temporal
    assert result_around(nest, nest.stage("e")) is None


def test_other_stages_of_a_row_have_their_own_place() -> None:
    for compute in (softmax(64, 32000), log_softmax(64, 32000)):
        nest = nest_of(compute)
        names = [s.stage.name for s in nest.stages if result_around(nest, s) is not None]
        assert names in ([], ["e"])


def test_no_result_that_holds_one_is_written_over_an_argument() -> None:
    nest = nest_of(softmax(64, 32000))
    assert in_place(nest) == ()


@pytest.mark.parametrize(("rows", "columns"), [(6, 20480), (5, 10007), (2, 8192)])
def test_results_are_those_with_a_place_of_their_own(
    rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = softmax(rows, columns)
    x = 3 * np.random.default_rng(columns).standard_normal((rows, columns), dtype=np.float32)
    steps = first(compute, host_target()).steps
    (got,) = called(compute, steps, [x])
    with monkeypatch.context() as patched:
        patched.setattr(buffers, "result_around", lambda *_: None)
        (apart,) = called(compute, steps, [x])
    np.testing.assert_array_equal(got, apart)


def test_a_result_of_another_type_holds_nothing() -> None:
    compute = softmax(64, 32000)
    tensors = tuple(replace(t, dtype="bf16") if t.name == "y0" else t for t in compute.tensors)
    nest = nest_of(replace(compute, tensors=tensors))
    assert result_around(nest, nest.stage("e")) is None

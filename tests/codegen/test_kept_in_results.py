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
from hlotune.schedules.ir.expr import Apply, Load
from hlotune.schedules.ir.in_place import in_place
from hlotune.schedules.ir.kept_in_results import holds_temporary, result_around
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.reductions import called
from tests.support.row_spaces import two_softmaxes


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


def test_rows_that_the_first_cache_holds_have_their_own_place_where_vectors_are_short() -> None:
    nest = nest_of(softmax(512, 1024), "x86-64-v3")
    assert result_around(nest, nest.stage("e")) is None
    nest = nest_of(softmax(512, 1024))
    found = result_around(nest, nest.stage("e"))
    assert found is not None
    assert found.name == "y0"


@pytest.mark.parametrize(("isa", "rows"), [("znver4", 2), ("x86-64-v3", 1), ("aarch64", 1)])
def test_two_rows_of_a_softmax_are_taken_together_where_one_place_is_less(
    isa: str, rows: int
) -> None:
    assert rows_together(nest_of(softmax(512, 1024), isa)) == rows


@pytest.mark.parametrize(("columns", "rows"), [(512, 2), (640, 1)])
def test_the_room_of_one_temporary_alone_is_saved(columns: int, rows: int) -> None:
    """Two rows of 640 elements would fit if both were where the result goes."""
    assert rows_together(nest_of(two_softmaxes(512, columns))) == rows


def rows_together(nest: LoopNest) -> int:
    """Rows that an iteration takes."""
    loops = nest.stage("out").loops
    return next(x.step for x in loops if x.root == "i" and x.kind == "serial")


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
    """The last stage alone reads a1, each element where it writes, but the temporary is ahead."""
    compute = softmax(64, 1024)
    *before, out = compute.stages
    factor = Load("a1", out.stores[0].index, "f32")
    product = Apply("multiply", (out.values[0], factor), "f32")
    other = replace(compute.tensor("a0"), name="a1")
    scaled = Compute((*compute.tensors, other), (*before, replace(out, values=(product,))))
    assert in_place(nest_of(scaled, "x86-64-v3")) == ((0, 1),)
    assert in_place(nest_of(scaled)) == ()


@pytest.mark.parametrize(
    ("rows", "columns"), [(6, 20480), (5, 10007), (2, 8192), (512, 1024), (7, 1000), (5, 33)]
)
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


@pytest.mark.parametrize("isa", ["x86-64", "aarch64"])
def test_short_vectors_keep_short_rows_apart_however_many_registers_there_are(isa: str) -> None:
    for columns, found in ((1024, []), (32000, ["e"])):
        nest = nest_of(softmax(64, columns), isa)
        kept = [s.stage.name for s in nest.stages if result_around(nest, s) is not None]
        assert kept == found


@pytest.mark.parametrize(
    ("isa", "columns"), [("znver4", 1024), ("znver4", 20480), ("x86-64-v3", 20480)]
)
def test_a_result_has_room_for_one_of_two_temporaries(isa: str, columns: int) -> None:
    nest = nest_of(two_softmaxes(64, columns), isa)
    inside = [s.stage.name for s in nest.stages if s.at is not None and s.at[0] == "out"]
    assert {"e", "ex"} <= {*inside}
    assert [s.stage.name for s in nest.stages if result_around(nest, s) is not None] == ["e"]
    assert holds_temporary(nest, nest.compute.tensor("y0"))


@pytest.mark.parametrize(("rows", "columns"), [(512, 1024), (7, 1000), (6, 20480)])
def test_a_sum_of_two_softmaxes_is_right(rows: int, columns: int) -> None:
    compute, rng = two_softmaxes(rows, columns), np.random.default_rng(0)
    a, b = (3 * rng.standard_normal((rows, columns), dtype=np.float32) for _ in range(2))
    (got,) = called(compute, first(compute, host_target()).steps, [a, b])
    powers = [np.exp(x - x.max(1, keepdims=True)) for x in (a, b)]
    wanted = sum(e / e.sum(1, keepdims=True) for e in powers)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_result_of_another_type_holds_nothing() -> None:
    compute = softmax(64, 32000)
    tensors = tuple(replace(t, dtype="bf16") if t.name == "y0" else t for t in compute.tensors)
    nest = nest_of(replace(compute, tensors=tensors))
    assert result_around(nest, nest.stage("e")) is None

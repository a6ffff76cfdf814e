"""Reductions that read values as the stage in front of them stores them."""

from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import OF_ROWS, softmax
from hlotune.codegen.llvm import loops
from hlotune.codegen.llvm.idioms.values_as_stored import AsStored, as_stored
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.schedule import Schedule
from tests.support.reductions import called


def first(compute: Compute, target: Any) -> Schedule:
    space = space_of(compute, target)
    return space.schedule(space.heuristic())


def nest_of(compute: Compute) -> LoopNest:
    target = TARGETS["znver4"]
    return replay(compute, first(compute, target), target)


def joined(nest: LoopNest) -> AsStored | None:
    return as_stored(nest, nest.stage("e"), nest.stage("sum"))


def test_the_exponentials_of_a_softmax_are_added_up_as_they_are_stored() -> None:
    found = joined(nest_of(softmax(64, 8192)))
    assert found is not None
    assert found.axes == {"i": "i", "j": "j"}
    assert found.stage.lanes == nest_of(softmax(64, 8192)).stage("sum").lanes


def test_other_stages_and_rows_that_bodies_do_not_divide_have_loops_of_their_own() -> None:
    assert joined(nest_of(softmax(64, 10007))) is None
    nest = nest_of(softmax(64, 8192))
    assert as_stored(nest, nest.stage("top"), nest.stage("e")) is None
    assert as_stored(nest, nest.stage("e"), nest.stage("out")) is None
    norm = nest_of(OF_ROWS["layer_norm"](64, 8192))
    assert as_stored(norm, norm.stage("mean"), norm.stage("squares")) is None


def test_rows_that_the_first_cache_holds_are_gone_over_once_more() -> None:
    assert joined(nest_of(softmax(512, 1024))) is None


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("columns", [8192, 20480, 10007])
def test_sums_and_what_is_stored_are_those_of_loops_of_their_own(
    columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, rows = softmax(6, columns, dtype), 6
    rng = np.random.default_rng(columns)
    x = (3 * rng.standard_normal((rows, columns))).astype(numpy_dtype(dtype))
    steps = first(compute, host_target()).steps
    (got,) = called(compute, steps, [x])
    with monkeypatch.context() as patched:
        patched.setattr(loops, "as_stored", lambda *_: None)
        (apart,) = called(compute, steps, [x])
    np.testing.assert_array_equal(got, apart)
    if dtype in ("f32", "f64"):
        wide = x.astype(np.float64)
        wanted = np.exp(wide - wide.max(1, keepdims=True))
        wanted /= wanted.sum(1, keepdims=True)
        np.testing.assert_allclose(got.reshape(rows, columns), wanted, rtol=1e-5)

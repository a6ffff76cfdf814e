"""Stages computed in the type of their results."""

import numpy as np
import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.winograd.rewriting import winograd
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.expr import loads, operations
from hlotune.schedules.ir.nest import LoopNest, initial
from hlotune.schedules.steps.steps import Narrow
from tests.support.computes import Case
from tests.support.interpreter import interpret
from tests.support.winograd_cases import windowed

CASE = windowed(channels=8, features=3)


def narrowed(case: Case, m: int = 4, stage: str = "weights") -> LoopNest:
    return Narrow(stage).apply(initial(winograd(m)(case.compute), TARGETS["znver4"]))


@pytest.mark.parametrize("m", (2, 4))
def test_a_narrowed_stage_gives_the_same_but_for_rounding(m: int) -> None:
    values = [np.asarray(v) for v in CASE.values]
    (wanted,) = interpret(CASE.compute, values)
    (found,) = interpret(narrowed(CASE, m).compute, values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_nothing_wider_is_left() -> None:
    stage = narrowed(CASE).stage("weights").stage
    assert {v.dtype for v in operations(stage.values)} == {"f32"}
    assert {x.dtype for v in stage.values for x in loads(v)} == {"f32"}


def test_what_was_shared_is_shared_still() -> None:
    wide = winograd(4)(CASE.compute).stage("weights")
    assert len(operations(narrowed(CASE).stage("weights").stage.values)) == len(
        operations(wide.values)
    )


def test_the_nest_and_its_compute_have_the_same_stage() -> None:
    nest = narrowed(CASE)
    assert nest.stage("weights").stage is nest.compute.stage("weights")


def test_a_stage_that_is_narrow_already_is_refused() -> None:
    with pytest.raises(ScheduleError, match=r"^narrow: expected results of tiles that are comp"):
        narrowed(CASE, stage="tiles")

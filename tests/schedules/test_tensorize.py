"""The step that puts sums onto a matrix unit: what it makes of a nest, and what it refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.schedules.algorithms.amx.rewriting import matrix
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    LayOut,
    Pack,
    Step,
    Tensorize,
    Unroll,
)
from hlotune.schedules.targets.cpu import CpuTarget
from tests.schedules.test_amx import AMX, first, space
from tests.schedules.test_dot_instructions import product
from tests.support.computes import Case, whole


def test_the_nest_of_the_first_candidate(golden: Any) -> None:
    case = product(100, 45, 64, "bf16")
    assert str(replay(case.compute, first(case), AMX)) == golden


def test_the_text_of_the_first_candidate(golden: Any) -> None:
    case = product(40, 40, 72, "i8")
    assert emit(replay(case.compute, first(case), AMX)).text == golden


def test_machine_code_has_products_of_tiles() -> None:
    case = product(64, 64, 64, "bf16")
    code = assembly(emit(replay(case.compute, first(case), AMX)).text, AMX)
    assert code.count("tdpbf16ps") == 4
    assert code.count("tilerelease") == 1
    assert code.count("ldtilecfg") == 1


def refused(case: Case, *steps: Step, target: CpuTarget = AMX) -> str:
    kept = [s for s in first(case).steps if not isinstance(s, Tensorize)]
    with pytest.raises(ScheduleError) as error:
        replay(case.compute, Schedule("matrix", (*kept, *steps)), target)
    return str(error.value)


def test_the_step_refuses_what_the_unit_cannot_do() -> None:
    case = product(64, 64, 64, "bf16")
    core = space(case).contraction.core.name
    assert "expected one of the axes" in refused(case, Tensorize(core, "r0", "r0"))
    assert "no product of tiles along these axes" in refused(case, Tensorize(core, "i1", "r0"))
    lesser = replace(AMX, features=tuple(f for f in AMX.features if f != "amx-bf16"))
    assert "has no matrix unit for bf16x2" in refused(
        case, Tensorize(core, "i0", "r0"), target=lesser
    )


def test_the_algorithm_without_its_step_is_refused() -> None:
    assert "expected a step Tensorize, got none" in refused(product(64, 64, 64, "i8"))


def test_the_step_refuses_operands_that_do_not_lie_as_tiles_take_them() -> None:
    case = product(64, 64, 64, "bf16")
    steps = [s for s in first(case).steps if type(s).__name__ != "Pack"]
    with pytest.raises(ScheduleError, match="does not lie along i1"):
        replay(case.compute, Schedule("matrix", tuple(steps)), AMX)


def test_later_steps_may_not_undo_what_tiles_rely_on() -> None:
    """The finished nest is checked again."""
    case = product(64, 64, 64, "bf16")
    core = space(case).contraction.core.name
    tiled = Tensorize(core, "i0", "r0")
    assert "32 steps are written out, tiles have 16" in refused(case, tiled, Unroll(core, "r0.1"))


def test_the_step_refuses_groups_that_are_a_loop() -> None:
    case = product(64, 64, 64, "bf16")
    steps = [s for s in first(case).steps if not (isinstance(s, Unroll) and s.axis.startswith("r"))]
    with pytest.raises(ScheduleError, match="no steps of r0 are written out"):
        replay(case.compute, Schedule("matrix", tuple(steps)), AMX)


def test_the_step_refuses_panels_that_part_a_tile() -> None:
    case = product(64, 64, 64, "bf16")

    def halved(step: Step) -> Step:
        if not isinstance(step, Pack):
            return step
        layout = tuple((d, 8 if n > 1 else n) for d, n in step.layout)
        return replace(step, layout=layout, lanes=8)

    steps = tuple(halved(s) for s in first(case).steps)
    with pytest.raises(ScheduleError, match="does not lie along i1, whole tiles together"):
        replay(case.compute, Schedule("matrix", steps), AMX)


def test_the_step_refuses_sums_that_lie_across_their_lanes() -> None:
    case = product(64, 64, 64, "bf16")
    core = space(case).contraction.core.name
    across = LayOut(core, ((1, 1), (0, 1)))
    assert "do not lie along i1" in refused(case, across, Tensorize(core, "i0", "r0"))


def test_the_step_refuses_sums_that_are_not_held() -> None:
    case = product(64, 64, 64, "bf16")
    steps = [s for s in first(case).steps if not isinstance(s, Accumulate)]
    with pytest.raises(ScheduleError, match="results are not held"):
        replay(case.compute, Schedule("matrix", tuple(steps)), AMX)


def test_other_sums_have_no_tiles() -> None:
    x = whole(8, 8)
    with pytest.raises(ScheduleError, match="matrix: expected a sum of products of bf16 in f32"):
        matrix(Case("f32", lambda x, y: x @ y, (x, x)).compute)


def test_sums_on_the_unit_are_not_added_up_of_pieces() -> None:
    """Whichever step comes first."""
    case = product(64, 64, 256, "bf16")
    found = map(space(case).schedule, space(case).sample(50, np.random.default_rng(0)))
    chunked = next(s for s in found if any(isinstance(x, Accumulate) and x.axis for x in s.steps))
    tiled = next(x for x in chunked.steps if isinstance(x, Tensorize))
    made = unscheduled(case.compute, "matrix", AMX)
    for step in (x for x in chunked.steps if x is not tiled):
        made = step.apply(made)
    wanted = f"^add_up: no loop of {tiled.stage} has its results in registers inside$"
    with pytest.raises(ScheduleError, match=wanted):
        AddUp(tiled.stage).apply(tiled.apply(made))
    with pytest.raises(ScheduleError, match=wanted):
        check(tiled.apply(AddUp(tiled.stage).apply(made)))

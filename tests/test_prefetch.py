"""Prefetching: what the step marks and refuses, and which addresses the code asks for."""

import re

import numpy as np
import pytest

from hlotune.codegen.emit import emit
from hlotune.measure.targets import TARGETS
from hlotune.schedules.cpu import CpuSpace, space_of
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.nest import LoopNest, initial
from hlotune.schedules.replay import replay
from hlotune.schedules.steps import Pack, Prefetch, Step
from tests.computes import gemm

TARGET = TARGETS["znver4"]
CASE = gemm(56, 512, 600, frozen=True)
PANELS = Pack("contract", "a1", "", "load", ((1, 32), (0, 1), (1, 1)), 16)


def nest(*steps: Step) -> LoopNest:
    result = initial(CASE.compute, TARGET)
    for step in steps:
        result = step.apply(result)
    return result


def space() -> CpuSpace:
    return space_of(CASE.compute, TARGET)


def test_prefetch_marks_the_stage_that_reads_the_panels() -> None:
    assert "prefetch a1.packed" in str(nest(PANELS, Prefetch("contract", "a1.packed")))


def test_prefetch_refuses_a_tensor_that_is_not_loaded() -> None:
    with pytest.raises(ScheduleError, match=r"^prefetch: contract does not load nothing$"):
        nest(PANELS, Prefetch("contract", "nothing"))


def test_prefetch_refuses_what_does_not_lie_in_panels() -> None:
    plain = Pack("contract", "a1", "", "load", ((0, 1), (1, 1)), 16)
    wanted = r"^prefetch: a1.packed is not packed in panels ahead of the loops$"
    with pytest.raises(ScheduleError, match=wanted):
        nest(plain, Prefetch("contract", "a1.packed"))


def test_the_first_candidate_asks_for_the_panels_of_a_large_constant() -> None:
    schedule = space().schedule(space().heuristic())
    assert any(isinstance(s, Prefetch) for s in schedule.steps)


def test_the_loops_inside_a_panel_ask_for_all_of_the_next_one() -> None:
    """Each request is a line; loops of i rows and k steps must cover k * 32 floats."""
    for rows in (12, 56):
        case = gemm(rows, 512, 600, frozen=True)
        found = space_of(case.compute, TARGET)
        config = found.heuristic()
        config[1 + found.knobs.columns("prefetch")[0]] = 1
        kernel_nest = replay(case.compute, found.schedule(config), TARGET)
        requests = len(re.findall(r"call void @llvm.prefetch", emit(kernel_nest).text))
        panel = next(s for s in kernel_nest.stages if s.scope == "load").layout[0][1]
        passes = -(-rows // found.tiling(config).register["i0"])
        assert requests * passes * 600 * 64 >= 600 * panel * 4


def test_a_config_without_prefetching_is_another_nest() -> None:
    both = np.stack([space().heuristic()] * 2)
    column = 1 + space().knobs.columns("prefetch")[0]
    both[:, column] = [0, 1]
    assert len(set(space().digest(both).tolist())) == 2

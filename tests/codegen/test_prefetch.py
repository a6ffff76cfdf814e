"""Prefetching: what the step marks and refuses, and which addresses the code asks for."""

import re

import numpy as np
import pytest

from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import LoopNest, initial
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace, space_of
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.steps import (
    LayOut,
    Pack,
    Prefetch,
    Reorder,
    Split,
    Step,
    Stream,
    Unroll,
)
from tests.schedules.test_result_steps import PLAIN
from tests.support.computes import gemm

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


BLOCKS_OF_POINTS = LayOut("products", ((0, 8), (1, 1), (2, 1), (0, 1)))


def requested(message: str, *steps: Step, compute: Compute = PLAIN) -> None:
    """The last step is refused, or else the nest that it makes."""
    made = initial(compute, TARGET)
    for step in steps[:-1]:
        made = step.apply(made)
    with pytest.raises(ScheduleError, match=message):
        check(steps[-1].apply(made))


def test_panels_that_no_loop_goes_along_are_not_asked_for() -> None:
    requested(
        r"^prefetch: no loop of out goes from panel to panel of products\[\d+, t, i2\]$",
        BLOCKS_OF_POINTS, Prefetch("out", "products"),
    )  # fmt: skip


def test_what_is_asked_for_is_judged_again_of_the_finished_nest() -> None:
    panels = LayOut("weights", ((2, 16), (0, 1), (1, 1), (2, 1)))
    rows = LayOut("weights", ((0, 1), (1, 1), (2, 1)))
    wanted = r"^prefetch: weights is not packed in panels ahead of the loops$"
    requested(wanted, panels, Prefetch("products", "weights"), rows)
    wanted = r"^stage products has no loop 't'; its loops are f t.0 t.1 i2 r2$"
    requested(wanted, Stream("products", "tiles", "t"), Split("products", "t", (7,)))
    wanted = r"^stream: r2 is unroll$"
    requested(wanted, Stream("products", "weights", "r2"), Unroll("products", "r2"))
    copy = Pack("products", "weights", "", "call", ((0, 1), (1, 1), (2, 1)), 16)
    wanted = r"^stream: products loads weights 0 times$"
    requested(wanted, Stream("products", "weights", "f"), copy)


def test_of_an_argument_rows_are_asked_for() -> None:
    requested(
        r"^stream: no loop over a sum of out goes from row to row of a2\[i2\]$",
        Stream("out", "a2", "i2"),
    )
    wanted = r"^stream: no loop over a sum of contract goes from row to row of a1\[r0, i1\]$"
    order = Reorder("contract", ("i0", "i1", "r0")), Unroll("contract", "r0")
    requested(wanted, *order, Stream("contract", "a1", "i1"), compute=CASE.compute)
    stream = Stream("contract", "a1", "r0")
    assert stream.apply(initial(CASE.compute, TARGET)).stage("contract").stream == (("a1", "r0"),)


def test_neighbours_that_lie_lines_apart_are_no_rows() -> None:
    i, r = Affine.axis("i"), Affine.axis("r")
    far = Load("x", (i * 16 + r * 32,), "f32")
    out = Stage("out", (Axis("i", 4),), (Axis("r", 3),), (Store("y", (i,)),), (far,), SUM)
    tensors = Tensor("x", (128,), "f32", "argument"), Tensor("y", (4,), "f32", "result")
    wanted = r"^stream: neighbours in x\[16\*i \+ 32\*r\] are 64 bytes apart, not in a row$"
    requested(wanted, Stream("out", "x", "r"), compute=Compute(tensors, (out,)))

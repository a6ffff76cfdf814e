"""Along which axis the first candidate is vectorized, and how operands are packed for it."""

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.spaces.cpu_contraction.vector_axes import cycles, vector_axes
from hlotune.schedules.steps.pack import Pack
from tests.support.computes import Case, conv, gemm, planes

TARGET = TARGETS["znver4"]


def axes(case: Case) -> tuple[str, ...]:
    return vector_axes(case.space(TARGET).contraction)


def test_where_neighbours_lie_together_no_other_axis_is_tried() -> None:
    assert axes(gemm(64, 64, 64)) == ("i1",)
    assert axes(conv(14, 14, 32, 64)) == ("i2",)


def test_windows_along_neighbours_bring_in_axes_that_can_be_packed() -> None:
    """In NCHW, `i0` are the features: their neighbours are far apart, but weights are packed along
    them.
    """
    assert axes(planes(14, 14, 32, 64)) == ("i2", "i0")


def test_where_most_lanes_would_idle_other_axes_are_brought_together() -> None:
    """Along three features three lanes of a vector are in use; along the width of the image all."""
    few, enough = conv(14, 14, 32, 3), conv(14, 14, 32, 8)
    assert axes(few) == ("i2", "i0", "i1")
    assert axes(enough) == ("i2",)
    space = few.space(TARGET)
    assert space.sketches[space.heuristic()[0]].vector in ("i0", "i1")


def test_the_first_candidate_takes_the_axis_of_least_cycles() -> None:
    space = planes(28, 28, 64, 64).space(TARGET)
    first = space.sketches[space.heuristic()[0]]
    c = space.contraction
    costs = {v: cycles(c, space.lanes, v, TARGET) for v in axes(planes(28, 28, 64, 64))}
    assert first.vector == min(costs, key=lambda v: costs[v]) == "i0"


def test_a_large_operand_is_packed_by_all_threads_and_a_small_one_by_the_caller() -> None:
    for features, shared in ((64, True), (16, False)):
        case = planes(28, 28, 64, features)
        space = case.space(TARGET)
        schedule = space.schedule(space.heuristic())
        packs = [s for s in schedule.steps if isinstance(s, Pack)]
        assert [p.axis for p in packs] == ["call"]
        text = str(replay(case.compute, schedule, TARGET))
        assert ("parallel p0.0" in text) == shared

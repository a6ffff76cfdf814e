"""First candidates of reductions where vectors are short and registers few."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.row_kernels import OF_ROWS, over_rows
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute, Store
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import StageNest, region
from hlotune.schedules.spaces.cpu_rows.first_candidate import LARGE_AHEAD
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Ahead
from tests.support.maps import applied, of_each


def first_nest(compute: Any, target: str) -> Any:
    space = space_of(compute, TARGETS[target])
    return replay(compute, space.schedule(space.heuristic()), TARGETS[target])


def tasks(s: StageNest, nest: Any) -> list[tuple[int, int]]:
    """The number of tasks along each axis that has several, and the elements of one."""
    trips = s.trips(region(nest, s))
    loops = zip(s.loops, trips, strict=True)
    return [(n, x.step) for x, n in loops if x.kind == "parallel" and n > 1]


@pytest.mark.parametrize("target", ["x86-64", "x86-64-v3", "znver4"])
@pytest.mark.parametrize("columns", [256, 768, 1024, 2048])
def test_columns_are_added_up_in_equal_parts_by_the_threads(columns: int, target: str) -> None:
    nest = first_nest(over_rows(1 << 13, columns), target)
    (s,) = nest.stages
    assert tasks(s, nest) == [(2, columns // 2)]


def test_the_largest_of_a_row_with_its_number_takes_one_vector_where_none_has_masks() -> None:
    bodies = {name: replay_lanes(name) for name in ("x86-64-v3", "znver4")}
    assert bodies["x86-64-v3"] == 8
    assert bodies["znver4"] > 16


def replay_lanes(target: str) -> int:
    """Elements of a row that the first candidate takes together."""
    nest = first_nest(OF_ROWS["argmax"](512, 32_000), target)
    lanes: int = nest.stages[-1].lanes
    return lanes


@pytest.mark.parametrize(
    ("names", "elements", "target", "asked"),
    [
        (("exponential", "tanh"), 1 << 24, "x86-64-v3", [LARGE_AHEAD]),
        (("exponential", "tanh"), 1 << 20, "x86-64-v3", []),
        (("negate",), 1 << 24, "x86-64-v3", []),
        (("exponential", "tanh"), 1 << 24, "znver4", []),
    ],
    ids=["long", "in a cache", "few operations", "AVX-512"],
)
def test_a_sum_of_what_takes_many_operations_asks_for_what_comes_from_memory(
    names: tuple[str, ...], elements: int, target: str, asked: list[int]
) -> None:
    compute = of_each(applied(*names), elements)
    (stage,) = compute.stages
    summed = replace(stage, parallel=(), reduce=stage.axes, stores=(Store("y0", ()),), combine=SUM)
    tensors = compute.tensor("a0"), replace(compute.tensor("y0"), shape=())
    space = space_of(Compute(tensors, (summed,)), TARGETS[target])
    steps = space.schedule(space.heuristic()).steps
    assert [s.bytes for s in steps if isinstance(s, Ahead)] == asked

"""First candidates of reductions where vectors are short and registers few."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.row_kernels import OF_ROWS, over_all, over_rows
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.partial_reductions.rewriting import PartialReductions
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import StageNest, region
from hlotune.schedules.spaces.cpu_rows.first_bodies import STEPS_OF_TAPS
from hlotune.schedules.spaces.cpu_rows.first_candidate import LARGE_AHEAD, TAPS_AHEAD
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.spaces.cpu_rows.streams import ROWS_AHEAD
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
        (("exponential", "tanh"), 1 << 24, "znver4", [ROWS_AHEAD]),
        (("negate",), 1 << 24, "znver4", []),
    ],
    ids=["long", "in a cache", "few operations", "AVX-512", "few operations, AVX-512"],
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


def differences(extent: int) -> Compute:
    """The sum of squared differences between planes of a cube: each is read for two of them."""
    places = [Affine.axis(a) for a in "ijk"]
    here, *behind = (
        Load("a0", (places[0] + k, *places[1:]), "f32") for k in range(3)
    )  # fmt: skip
    found = [Apply("subtract", (x, here), "f32") for x in behind]
    squares = [Apply("multiply", (x, x), "f32") for x in found]
    value = Apply("add", (squares[0], squares[1]), "f32")
    reduce = (Axis("i", extent - 2), Axis("j", extent), Axis("k", extent))
    stage = Stage("sum", (), reduce, (Store("y0", ()),), (value,), SUM)
    tensors = Tensor("a0", (extent,) * 3, "f32", "argument"), Tensor("y0", (), "f32", "result")
    return Compute(tensors, (stage,))


@pytest.mark.parametrize(("target", "planes"), [("x86-64-v3", 2), ("znver4", 4)])
def test_sums_over_neighbours_in_memory_take_several_planes_together(
    target: str, planes: int
) -> None:
    (s,) = first_nest(differences(256), target).stages
    assert written_out(s, "i") == planes
    assert target != "znver4" or written_out(s, "k") == 16, "one vector of each row"
    (small,) = first_nest(differences(32), target).stages
    assert written_out(small, "i") == 1


def written_out(s: StageNest, root: str) -> int:
    """Elements of an axis in one body."""
    return min(x.step for x in s.loops if x.root == root and x.kind == "serial")


def weights(channels: int, taps: int, images: int, columns: int) -> Compute:
    """The gradient of the weights of a depthwise convolution of one row by ones."""
    c, t, b, x = (Affine.axis(a) for a in "ctbx")
    load = Load("a0", (b, c, x + t + -(taps // 2)), "f32")
    axes = (Axis("c", channels), Axis("t", taps)), (Axis("b", images), Axis("x", columns))
    stage = Stage("sum", *axes, (Store("y0", (c, t)),), (load,), SUM)
    tensors = (Tensor("a0", (images, channels, columns), "f32", "argument"),
               Tensor("y0", (channels, taps), "f32", "result"))  # fmt: skip
    return Compute(tensors, (stage,))


@pytest.mark.parametrize("target", ["x86-64-v3", "znver4"])
@pytest.mark.parametrize(("taps", "together"), [(3, 3), (5, 5), (8, 8), (31, 8)])
def test_taps_that_read_the_same_elements_are_summed_together(
    taps: int, together: int, target: str
) -> None:
    (s,) = first_nest(weights(64, taps, 4, 1024), target).stages
    assert s.vector_root == "x"
    assert written_out(s, "t") == together


def test_parts_of_a_sum_that_lie_one_behind_the_other_are_not_taken_together() -> None:
    parted = PartialReductions(8)(over_all(1 << 24))
    nest = first_nest(parted, "znver4")
    assert written_out(nest.stages[0], "p0") == 1


@pytest.mark.parametrize(("images", "asked"), [(32, [TAPS_AHEAD]), (2, [])])
def test_taps_ask_for_rows_of_the_next_channel_of_several_images_that_no_cache_holds(
    images: int, asked: list[int]
) -> None:
    compute = weights(512, 5, images, 1024)
    space = space_of(compute, TARGETS["znver4"])
    schedule = space.schedule(space.heuristic())
    assert [s.bytes for s in schedule.steps if isinstance(s, Ahead)] == asked
    (s,) = replay(compute, schedule, TARGETS["znver4"]).stages
    assert written_out(s, "b") == min(STEPS_OF_TAPS, images)


@pytest.mark.parametrize(
    ("target", "columns", "vectors"),
    [("znver4", 208, 13), ("znver4", 512, 8), ("x86-64-v3", 208, 6)],
)
def test_short_rows_are_read_whole_where_threads_take_groups_of_them(
    target: str, columns: int, vectors: int
) -> None:
    b, r, c = (Affine.axis(a) for a in "brc")
    axes = (Axis("b", 64), Axis("c", columns)), (Axis("r", 1024),)
    load = Load("a0", (b, r, c), "f32")
    stage = Stage("sum", *axes, (Store("y0", (b, c)),), (load,), SUM)
    tensors = (Tensor("a0", (64, 1024, columns), "f32", "argument"),
               Tensor("y0", (64, columns), "f32", "result"))  # fmt: skip
    (s,) = first_nest(Compute(tensors, (stage,)), target).stages
    lanes = TARGETS[target].vector_bytes // 4
    assert written_out(s, "c") == vectors * lanes

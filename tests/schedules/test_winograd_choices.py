"""Where Winograd's algorithms transform weights and inputs, in which blocks, and how points lie."""

import re
from math import ceil, prod

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.sketch import LONGEST_SUM, WinogradSketch
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.ir.flops import real_flops
from hlotune.schedules.ir.nest import LoopNest, region, stored_bytes
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import runs_alone
from tests.support.computes import conv
from tests.support.winograd_cases import windowed
from tests.support.winograd_spaces import TARGET, drawn, nest_of, spaces


def test_blocks_are_equal_shares_that_the_cache_holds() -> None:
    for name in ("C2", "C6"):
        space = spaces(name)[1]
        points, tiles, _ = space.sizes
        n = space.numbers(space.heuristic()[None])
        blocks = -(-tiles // int(n.tiles[0]))
        assert blocks % TARGET.threads == 0
        assert points * n.tiles[0] * space.contraction.reduce[0].extent * 4 < TARGET.l2_bytes


@pytest.mark.parametrize(("size", "channels", "several"), [(8, 16, False), (28, 32, True)])
def test_products_that_save_less_than_waking_a_thread_takes_are_one_block(
    size: int, channels: int, several: bool
) -> None:
    for space in winograd_spaces(conv(size, size, channels, channels).compute, TARGET):
        block = space.numbers(space.heuristic()[None]).tiles[0]
        assert runs_alone(space.contraction, TARGET) != several
        assert (block < space.sizes[1]) == several


def whens(space: WinogradSpace) -> list[str]:
    return [s.when for s in space.sketches]


def first_when(space: WinogradSpace) -> str:
    return whens(space)[int(space.heuristic()[0])]


def with_knob(
    space: WinogradSpace, name: str, value: int, start: NDArray[np.int32] | None = None
) -> NDArray[np.int32]:
    """A config, the first candidate unless it is given, with another value of one knob."""
    config = (space.heuristic() if start is None else start).copy()
    column = [k.kind for k in space.knobs].index(name)
    config[1 + column] = space.knobs[column].values.index(value)
    return config


def test_weights_of_constants_are_transformed_at_load_others_by_call_or_task() -> None:
    assert {w for s in spaces("frozen") for w in whens(s)} == {"load"}
    assert {w for s in spaces("small") for w in whens(s)} == {"call", "task"}


def test_tasks_transform_weights_first_where_each_thread_has_few_blocks() -> None:
    few, many = conv(28, 28, 128, 128), conv(112, 112, 64, 64)
    assert {first_when(s) for s in winograd_spaces(few.compute, TARGET)} == {"task"}
    assert {first_when(s) for s in winograd_spaces(many.compute, TARGET)} == {"call"}


def test_tasks_transform_weights_that_would_not_stay_in_the_last_cache() -> None:
    space = winograd_spaces(conv(56, 56, 512, 1024).compute, TARGET)[1]
    n = space.numbers(space.heuristic()[None])
    assert space.compute.tensor("weights").bytes > TARGET.l3_bytes // 2
    assert space.sizes[1] / int(n.tiles[0]) / TARGET.threads > 2  # and yet:
    assert first_when(space) == "task"


@pytest.mark.parametrize(("size", "channels", "together"), [(56, 64, False), (14, 256, True)])
def test_threads_that_share_features_transform_the_inputs_together_first(
    size: int, channels: int, together: bool
) -> None:
    space = winograd_spaces(conv(size, size, channels, channels).compute, TARGET)[1]
    n = space.numbers(space.heuristic()[None])
    groups = ceil(channels / int(n.panels[0] * n.across[0] * space.lanes))
    assert (groups > 1) == bool(n.apart[0]) == together
    nest = nest_of(space, space.heuristic())
    assert nest is not None
    assert (nest.stage("tiles").at is None) == together


def test_each_group_of_features_transforms_the_inputs_of_its_task() -> None:
    """A group has one panel of two vectors, or of three; apart they are transformed once."""
    space = winograd_spaces(conv(14, 14, 256, 256).compute, TARGET)[1]
    tiles = real_flops(space.compute, space.compute.stage("tiles"))
    config = space.heuristic()
    config[3], found = 1, {}
    for panels, apart in ((1, False), (3, False), (8, False), (1, True)):
        chosen = with_knob(space, "group", panels, config)
        chosen[0] = space.sketches.index(WinogradSketch(4, "task", apart))
        found[panels, apart] = float(np.squeeze(space.work(chosen[None]).beside))
    once = found[1, True]
    assert found == {
        (1, False): once + 7 * tiles, (3, False): once + 2 * tiles, (8, False): once,
        (1, True): once,
    }  # fmt: skip


def test_weights_of_a_task_are_of_one_panel_and_some_channels() -> None:
    space = spaces("C6")[1]
    config = with_knob(space, "depth", 4)
    n = space.numbers(config[None])
    nest = nest_of(space, config)
    assert nest is not None
    panel, depth = int(n.across[0]) * space.lanes, 4 * int(n.unroll[0])
    assert region(nest, nest.stage("weights")) == {"r2": depth, "i2": panel}
    free_bytes = space.sizes[0] * 64
    points = space.sizes[0]
    assert stored_bytes(nest, nest.stage("weights")) == points * depth * panel * 4 + free_bytes


def terms_of(nest: LoopNest) -> int:
    """How many terms are added one to another at most."""
    s = nest.stage("products")
    sizes = s.sizes_inside(s.index(s.accumulate or ""), region(nest, s))
    return prod(sizes[a.name] for a in s.stage.reduce)


@pytest.mark.parametrize("name", ("deep", "deep and frozen", "taps", "taps and channels"))
def test_long_sums_are_added_up_of_even_pieces(name: str) -> None:
    """A piece has at least half of the most terms, where no task has weights of less."""
    for space in spaces(name):
        whole = prod(a.extent for a in space.contraction.reduce)
        for config in drawn(space, 60, 0):
            nest = nest_of(space, config)
            if nest is None:
                continue
            assert nest.stage("products").adds_up
            assert terms_of(nest) <= LONGEST_SUM < whole
            if nest.stage("weights").at is None:
                assert terms_of(nest) > LONGEST_SUM // 2


def test_short_sums_have_no_pieces() -> None:
    for space in spaces("C6"):
        for config in space.sample(20, np.random.default_rng(0)):
            nest = nest_of(space, config)
            assert nest is not None
            of_task = "weights" in {s.stage.name for s in nest.stages if s.at is not None}
            assert nest.stage("products").adds_up <= of_task


def test_points_lie_a_line_apart_or_not_and_nests_are_told_apart() -> None:
    space = spaces("C6")[1]
    near, apart = (with_knob(space, "spread", k) for k in (0, 1))
    nests = nest_of(space, near), nest_of(space, apart)
    assert [n and n.stage("products").spacing for n in nests] == [0, 16]
    assert [n and n.stage("tiles").spacing for n in nests] == [0, 16]
    assert len(set(space.digest(np.stack([near, apart])))) == 2


def test_blocks_of_other_sizes_are_other_nests_though_they_take_as_many_steps() -> None:
    """25 of 49 tiles in rows of 6 are four of these and one; 27 are four of these and three."""
    space = spaces("C6")[1]
    tiled = with_knob(space, "register", 6)
    blocks = np.stack([with_knob(space, "block", n, tiled) for n in (25, 27)])
    trips = space.path(blocks).trips
    assert (trips[0] == trips[1]).all()
    assert len({str(nest_of(space, c)) for c in blocks}) == len(set(space.digest(blocks))) == 2


def test_equal_digests_are_equal_nests() -> None:
    """But for the steps of loops that do not iterate."""
    for name in ("small", "frozen"):
        space = spaces(name)[1]
        configs, nests = space.sample(40, np.random.default_rng(0)), dict[int, str]()
        for key, config in zip(space.digest(configs).tolist(), configs, strict=True):
            nest = re.sub(r" x1 step \d+", " x1", str(nest_of(space, config)))
            assert nests.setdefault(key, nest) == nest


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_whose_features_lie_apart_take_longer_unless_they_are_transformed_at_load(
    frozen: bool,
) -> None:
    """As gradients with respect to images read them: a vector of them is gathered."""
    beside = []
    for layout in ("NHWC HWIO", "NHWC OIHW"):
        case = windowed(size=(7, 7), channels=64, features=64, layout=layout, frozen=frozen)
        _, space = winograd_spaces(case.compute, TARGET)
        work = space.work(space.heuristic()[None])
        beside.append(float(np.max(work.beside)))
    near, apart = beside
    vectors = 9 * 64 * 64 / space.lanes
    least = vectors * TARGET.rates.scatter_cycles * space.lanes * TARGET.rates.multiply_adds
    assert apart == near if frozen else apart - near >= 0.99 * least

"""The spaces of Winograd's algorithms, alone and beside the direct one."""

import re
from math import ceil, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.read_back import winograd_path
from hlotune.schedules.algorithms.winograd.sketch import LONGEST_SUM, WinogradSketch
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import digest
from hlotune.schedules.features.loop_trees import ABSENT, nodes_of
from hlotune.schedules.features.summary import NAMES, features_of
from hlotune.schedules.ir.flops import real_flops
from hlotune.schedules.ir.nest import LoopNest, region, stored_bytes
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import runs_alone
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case, conv, gemm, named
from tests.support.winograd_cases import windowed, windows

TARGET = TARGETS["znver4"]
targets = st.sampled_from(tuple(TARGETS.values()))
seeds = st.integers(0, 2**32)
CASES = {
    "C2": lambda: named("C2"),
    "C6": lambda: named("C6"),
    "small": lambda: windowed(channels=5, features=40),
    "frozen": lambda: windowed(channels=21, features=19, frozen=True),
    "one axis": lambda: windowed(size=(40,), window=(3,), pads=((1, 1),), features=70),
    "three axes": lambda: windowed(size=(4, 6, 7), window=(3,) * 3, pads=((1, 1),) * 3),
    "deep": lambda: windowed(size=(6, 7), channels=300, features=40),
    "deep and frozen": lambda: windowed(
        size=(4, 5, 6), window=(3,) * 3, pads=((1, 1),) * 3, channels=70, frozen=True
    ),
    "taps": lambda: windowed(
        size=(60, 9), window=(50, 3), pads=((25, 24), (1, 1)), channels=3, features=32
    ),
    "taps and channels": lambda: windowed(
        size=(7, 60, 9), window=(2, 50, 3), pads=((0, 1), (25, 24), (1, 1)), channels=16
    ),
    "dilated": lambda: windowed(size=(12, 13), pads=((2, 2),) * 2, dilation=2),
}


def spaces(name: str) -> tuple[WinogradSpace, ...]:
    found = winograd_spaces(CASES[name]().compute, TARGET)
    assert [s.outputs for s in found] == [2, 4]
    return found


def nest_of(space: WinogradSpace, config: NDArray[np.int32]) -> LoopNest | None:
    try:
        return replay(space.original, space.schedule(config), space.target)
    except ScheduleError:
        return None


def drawn(space: WinogradSpace, n: int, seed: int) -> Configs:
    """Uniform in every knob, register tiles that do not fit among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(space.counts, size=(n, len(space.counts)), dtype=np.int32)


def test_moving_ends_with_the_last_config_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    (space, _), asked, legal = spaces("small"), list[int](), WinogradSpace.legal
    configs = space.sample(4, np.random.default_rng(0))

    def counted(space: WinogradSpace, configs: Configs) -> NDArray[np.bool_]:
        asked.append(len(configs))
        return legal(space, configs)

    monkeypatch.setattr(WinogradSpace, "legal", counted)
    moved = space.neighbours(configs, np.random.default_rng(1))
    assert (moved != configs).any(axis=1).all()
    assert all(asked)


def binds(space: WinogradSpace, configs: Configs) -> None:
    nests = [nest_of(space, c) for c in configs]
    legal = space.legal(configs)
    np.testing.assert_array_equal(legal, [n is not None for n in nests])
    path, features, trees = space.path(configs), space.features(configs), space.nodes(configs)
    slots = path.axis.shape[1]
    for k, nest in enumerate(nests):
        if nest is None:
            continue
        one = winograd_path(nest, space.contraction)
        assert digest(one) == digest(path)[k]
        work = space.work(configs[k][None])
        found = features_of(space.contraction, TARGET, space.lanes, one, work)[0]
        pairs = zip(NAMES, found, features[k], strict=True)
        wrong = [name for name, a, b in pairs if abs(a - b) > 1e-5]
        assert not wrong or space.target != TARGET, (wrong, space.schedule(configs[k]).to_json())
        levels = levels_of(space.contraction, space.target, space.lanes, one, slots)
        np.testing.assert_allclose(nodes_of(levels, work).values[0], trees.values[k], atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_arrays_say_what_nests_built_one_by_one_say(name: str) -> None:
    for space in spaces(name):
        configs = np.concatenate([drawn(space, 6, 0), space.sample(4, np.random.default_rng(0))])
        binds(space, configs)
        assert space.legal(configs[6:]).all()


@settings(max_examples=5)
@given(windows(), targets, seeds)
def test_arrays_and_nests_agree_for_any_window(case: Case, target: CpuTarget, seed: int) -> None:
    for space in winograd_spaces(case.compute, target):
        binds(space, drawn(space, 4, seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_arrays_and_nests_agree_on_many_configs(name: str) -> None:
    for space in spaces(name):
        binds(space, drawn(space, 600, 1))


@pytest.mark.parametrize("name", CASES)
def test_locating_a_schedule_of_the_space_gives_it_back(name: str) -> None:
    for space in spaces(name):
        for config in (space.heuristic(), *space.sample(20, np.random.default_rng(5))):
            schedule = space.schedule(config)
            found = space.locate(Schedule.from_json(schedule.to_json()))
            assert found is not None
            assert space.schedule(found) == schedule


def test_a_schedule_of_another_shape_is_brought_to_the_nearest() -> None:
    (_, large), (_, small) = spaces("C6"), spaces("small")
    found = small.locate(large.schedule(large.heuristic()))
    assert found is not None
    assert small.legal(found[None])[0]


def test_a_schedule_for_other_weights_keeps_where_its_inputs_are_transformed() -> None:
    (_, plain), (_, frozen) = (spaces(name) for name in ("small", "frozen"))
    for k, sketch in enumerate(plain.sketches):
        config = plain.heuristic()
        config[0] = k
        found = frozen.locate(plain.schedule(config))
        assert found is not None
        assert frozen.sketches[int(found[0])].apart == sketch.apart


def test_schedules_of_other_algorithms_are_not_located() -> None:
    two, four = spaces("small")
    assert two.locate(four.schedule(four.heuristic())) is None
    assert two.locate(DEFAULT) is None
    assert two.locate(Schedule("winograd(2)")) is None


def test_neighbours_are_legal_and_others() -> None:
    for space in spaces("C2"):
        rng = np.random.default_rng(0)
        configs = space.sample(200, rng)
        moved = space.neighbours(configs, rng)
        assert space.legal(moved).all()
        assert (moved != configs).any(axis=1).mean() > 0.95


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


# where weights are transformed, and how points lie ------------------------------------------------


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


# all algorithms together --------------------------------------------------------------------------


def together(name: str) -> AlgorithmsSpace:
    found = space_of(CASES[name]().compute, TARGET)
    assert isinstance(found, AlgorithmsSpace)
    return found


def test_the_first_candidates_are_one_of_each_algorithm() -> None:
    space = together("C6")
    algorithms = [space.schedule(c).algorithm for c in space.firsts()]
    assert algorithms == ["direct", "winograd(2)", "winograd(4)"]
    np.testing.assert_array_equal(space.heuristic(), space.firsts()[0])
    assert space.size > sum(p.size for p in space.parts[1:])


def test_each_algorithm_has_its_share_of_a_sample() -> None:
    space = together("C6")
    configs = space.sample(300, np.random.default_rng(0))
    assert space.legal(configs).all()
    shares = np.bincount(space.part_of(configs), minlength=3) / 300
    assert (abs(shares - 1 / 3) < 0.1).all()
    assert len(np.unique(space.digest(configs))) > 250


def test_moves_sometimes_change_the_algorithm() -> None:
    space, rng = together("C6"), np.random.default_rng(0)
    configs = space.sample(600, rng)
    moved = space.neighbours(configs, rng)
    assert space.legal(moved).all()
    jumped = (space.part_of(moved) != space.part_of(configs)).mean()
    assert 0.005 < jumped < 0.05


def test_rows_that_are_no_configs_are_not_legal() -> None:
    """Crossing configs of two algorithms makes such rows."""
    space = together("C6")
    direct, winograd = space.firsts()[0], space.firsts()[2]
    crossed = np.where(np.arange(len(direct)) < 1, winograd, direct + 1)
    beyond, below = direct.copy(), direct.copy()
    beyond[0], below[0] = len(space.sketches), -1
    assert not space.legal(np.array([crossed, beyond, below], np.int32)).any()


def test_features_and_trees_of_all_algorithms_stand_in_one_array() -> None:
    space = together("small")
    configs = space.sample(30, np.random.default_rng(0))
    features, trees = space.features(configs), space.nodes(configs)
    assert features.shape == (30, len(NAMES))
    assert trees.values.shape[:2] == trees.parent.shape
    for k, config in enumerate(configs):
        np.testing.assert_array_equal(space.features(config[None])[0], features[k])
        one = space.nodes(config[None])
        np.testing.assert_array_equal(one.values[0], trees.values[k])
        np.testing.assert_array_equal(one.parent[0], trees.parent[k])
    assert (trees.parent == ABSENT).any()


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_of_any_algorithm_is_located(name: str) -> None:
    space = together(name)
    for config in space.firsts():
        found = space.locate(space.schedule(config))
        assert found is not None
        assert space.schedule(found) == space.schedule(config)
    assert space.locate(DEFAULT) is None


def test_strict_numerics_and_other_kernels_have_the_direct_space_alone() -> None:
    compute = CASES["C6"]().compute
    assert isinstance(space_of(compute, TARGET, "strict"), CpuSpace)
    assert isinstance(space_of(gemm(64, 64, 64).compute, TARGET), CpuSpace)


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

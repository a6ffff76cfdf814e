"""The spaces of Winograd's algorithms: arrays say what nests say, and schedules are found again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.read_back import winograd_path
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import digest
from hlotune.schedules.features.loop_trees import nodes_of
from hlotune.schedules.features.summary import NAMES, features_of
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case
from tests.support.winograd_cases import windows
from tests.support.winograd_spaces import CASES, TARGET, drawn, nest_of, spaces

targets = st.sampled_from(tuple(TARGETS.values()))
seeds = st.integers(0, 2**32)


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

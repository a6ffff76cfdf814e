"""The space of the direct and of Winograd's algorithms together."""

import numpy as np
import pytest

from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.features.loop_trees import ABSENT
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.steps.schedule import DEFAULT
from tests.support.computes import gemm
from tests.support.winograd_spaces import CASES, TARGET


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

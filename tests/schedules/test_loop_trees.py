"""Loop trees of whole populations are those of the nests, taken one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.features.loop_levels import OPERANDS
from hlotune.schedules.features.loop_trees import ABSENT, NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import REAL, SMALL, named
from tests.support.contraction_cases import Drawn, contractions
from tests.support.node_facts import Node, tree_of

ALL = (*REAL, *SMALL)
AVX512 = TARGETS["znver4"]


def slots_of(name: str, slots: int) -> int:
    """Where a node of the reference stands in an array."""
    first_leaf = slots - OPERANDS - 2
    if name.startswith("loop"):
        return 1 + int(name[4:])
    if name.startswith("pack"):
        return first_leaf + int(name[4:])
    return {"root": 0, "sum": slots - 2, "epilogue": slots - 1}[name]


def assert_same(nodes: Nodes, row: int, wanted: dict[str, Node]) -> None:
    slots = nodes.parent.shape[1]
    values = np.zeros((slots, len(NODE_NAMES)))
    parent = np.full(slots, ABSENT)
    for name, node in wanted.items():
        slot = slots_of(name, slots)
        parent[slot] = node.pop("parent")
        for column, value in node.items():
            values[slot, NODE_NAMES.index(column)] = value
    np.testing.assert_array_equal(nodes.parent[row], parent)
    wrong = np.argwhere(~np.isclose(nodes.values[row], values, rtol=1e-5, atol=2e-4))
    assert not len(wrong), [
        (s, NODE_NAMES[k], nodes.values[row, s, k], values[s, k]) for s, k in wrong.tolist()
    ]


def binds_nodes(space: CpuSpace, configs: Configs) -> None:
    nodes = space.nodes(configs)
    for k, config in enumerate(configs):
        nest = replay(space.contraction.compute, space.schedule(config), space.target)
        assert_same(nodes, k, tree_of(space.contraction, nest, space.lanes))


@pytest.mark.parametrize("name", ALL)
def test_trees_of_arrays_are_those_of_nests_taken_one_by_one(name: str) -> None:
    space = named(name).space(AVX512)
    binds_nodes(space, space.sample(15, np.random.default_rng(0)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_trees_of_many_configs_are_those_of_nests(name: str) -> None:
    space = named(name).space(AVX512)
    binds_nodes(space, space.sample(300, np.random.default_rng(1)))


@given(contractions(), st.sampled_from(tuple(TARGETS.values())), st.integers(0, 2**32))
def test_trees_and_nests_agree_for_any_contraction(
    case: Drawn, target: CpuTarget, seed: int
) -> None:
    space = case.case.space(target)
    binds_nodes(space, space.sample(4, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", SMALL)
def test_equal_nests_are_equal_trees_through_whatever_sketch(name: str) -> None:
    space, rng = named(name).space(AVX512), np.random.default_rng(3)
    configs = space.sample(2000, rng)
    twins = configs.copy()
    twins[:, 0] = rng.integers(len(space.sketches), size=len(twins))
    same = space.legal(twins) & (space.digest(twins) == space.digest(configs))
    same &= twins[:, 0] != configs[:, 0]
    first, second = space.nodes(configs), space.nodes(twins)
    assert same.any()
    np.testing.assert_array_equal(first.values[same], second.values[same])
    np.testing.assert_array_equal(first.parent[same], second.parent[same])


def test_all_configs_of_a_space_have_the_same_slots() -> None:
    space = named("small conv").space(AVX512)
    configs = space.sample(50, np.random.default_rng(0))
    whole = space.nodes(configs)
    assert whole.values.dtype == np.float32 and whole.parent.dtype == np.int16
    for k in range(len(configs)):
        alone = space.nodes(configs[k : k + 1])
        np.testing.assert_array_equal(alone.values[0], whole.values[k])
        np.testing.assert_array_equal(alone.parent[0], whole.parent[k])


def test_a_parent_is_there_and_stands_before_its_children() -> None:
    space = named("C6").space(AVX512)
    parent = space.nodes(space.sample(200, np.random.default_rng(0))).parent
    assert (parent[:, 0] == ROOT_PARENT).all() and (parent[:, 1:] != ROOT_PARENT).all()
    for slot in range(1, parent.shape[1]):
        there = parent[:, slot] != ABSENT
        above = parent[there, slot]
        assert (above < slot).all()
        assert (parent[there, above] != ABSENT).all()

"""Models get what they read: summaries or loop trees, of several kernels one after the other."""

import numpy as np
import pytest

from hlotune.costmodel.inputs import (
    as_summaries,
    as_trees,
    columns,
    count,
    inputs_of,
    joined,
    taken,
)
from hlotune.schedules.features.loop_trees import ABSENT, NODE_NAMES, Nodes
from hlotune.schedules.features.summary import NAMES
from tests.support.toy import ToySpace

SMALL, LARGE = ToySpace((4, 4)), ToySpace((4, 4, 4))


def trees(space: ToySpace, n: int) -> Nodes:
    return as_trees(inputs_of("nodes", space, space.sample(n, np.random.default_rng(0))))


def test_a_model_is_given_what_it_reads() -> None:
    configs = SMALL.sample(3, np.random.default_rng(0))
    given = as_summaries(inputs_of("summary", SMALL, configs))
    np.testing.assert_array_equal(given, SMALL.features(configs))
    trees = as_trees(inputs_of("nodes", SMALL, configs))
    np.testing.assert_array_equal(trees.values, SMALL.nodes(configs).values)


def test_columns_have_the_names_of_the_features() -> None:
    assert columns("summary") == NAMES
    assert columns("nodes") == NODE_NAMES


def test_trees_of_several_kernels_are_joined_with_room_for_the_largest() -> None:
    small, large = trees(SMALL, 2), trees(LARGE, 3)
    both = as_trees(joined([small, large]))
    assert count(both) == 5
    assert both.parent.shape == (5, large.parent.shape[1])
    assert (both.parent[:2, small.parent.shape[1] :] == ABSENT).all()
    np.testing.assert_array_equal(both.parent[:2, : small.parent.shape[1]], small.parent)
    np.testing.assert_array_equal(both.values[2:], large.values)


def test_rows_are_taken_by_number_and_by_mask() -> None:
    whole = trees(LARGE, 4)
    some = as_trees(taken(whole, np.array([2, 0])))
    np.testing.assert_array_equal(some.values, whole.values[[2, 0]])
    rows = as_summaries(taken(np.eye(4, dtype=np.float32), np.arange(4) % 2 == 1))
    np.testing.assert_array_equal(rows, np.eye(4)[[1, 3]])


def test_summaries_and_trees_are_not_confused() -> None:
    with pytest.raises(TypeError, match="expected summaries, got loop trees"):
        as_summaries(trees(SMALL, 1))
    with pytest.raises(TypeError, match="expected loop trees, got summaries"):
        as_trees(np.zeros((1, 2), np.float32))

"""What decides when a model stops learning is nothing that it has learned from."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hlotune.costmodel import trees
from hlotune.costmodel.metrics import GroupedScores
from hlotune.costmodel.training_budget import held_out, held_out_in_turn
from hlotune.costmodel.trees import GROWTH, Lesson, Trees
from tests.support.made_rows import Groups, Scores, kernels


def test_offline_whole_kernels_are_held_out_and_between_batches_single_rows() -> None:
    groups = np.repeat(np.arange(10), 20).astype(np.int32)
    offline, batch = held_out(groups, "offline"), held_out(groups, "batch")
    assert set(groups[offline]) == {4, 9}
    assert not set(groups[~offline]) & {4, 9}
    assert set(groups[batch]) == set(groups[~batch]) == set(range(10))
    assert not held_out(groups[:30], "batch").any()


@pytest.mark.parametrize("groups", [2, 3, 10])
def test_offline_each_kernel_is_held_out_once(groups: int) -> None:
    numbers = np.repeat(np.arange(groups), 20).astype(np.int32)
    parts = held_out_in_turn(numbers, "offline")
    assert len(parts) == min(groups, 5)
    assert (np.sum(parts, axis=0) == 1).all()
    for held in parts:
        assert not set(numbers[held]) & set(numbers[~held])


def test_no_rows_of_a_kernel_that_is_alone_are_held_out_offline() -> None:
    assert held_out_in_turn(np.zeros(100, np.int32), "offline") == []


def test_offline_trees_are_stopped_by_kernels_that_they_have_not_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(GROWTH, "offline", replace(GROWTH["offline"], rounds=3, patience=3))
    train, learned, judged = Trees._train, list[set[int]](), list[set[int]]()

    def spied(self: Trees, member: Any, base: Any, lesson: Lesson, *a: Any, **judge: Any) -> Any:
        if "evals" in judge:
            learned.append(set(lesson.groups.tolist()))
        return train(self, member, base, lesson, *a, **judge)

    class Judge(GroupedScores):
        def __init__(self, scores: Scores, groups: Groups) -> None:
            judged.append(set(groups.tolist()))
            super().__init__(scores, groups)

    monkeypatch.setattr(Trees, "_train", spied)
    monkeypatch.setattr(trees, "GroupedScores", Judge)
    features, scores, groups = kernels(300, groups=7)
    Trees("offline", "rank").fit(features, scores, groups)
    assert judged == [{0, 5}, {1, 6}, {2}, {3}, {4}]
    assert learned == [set(range(7)) - held for held in judged]


def test_trees_of_a_kernel_that_is_alone_grow_for_a_fixed_number_of_rounds() -> None:
    """Whatever rows of it say: these are no kernel that was not seen."""
    model = Trees("offline", "rank")
    model.fit(*kernels(400))
    assert model._grown is not None
    rounds = model._grown.trees.booster.num_boosted_rounds()
    assert rounds == GROWTH["offline"].blind

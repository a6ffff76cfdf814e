"""Batches far apart, and how far a model is trusted."""

import numpy as np
import pytest

from hlotune.search.guard import EPSILON, EPSILON_MOST, judged
from hlotune.search.picking import spread

TIMES = np.arange(1.0, 17.0)


def test_spread_rows_are_farther_apart_than_rows_at_random() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((500, 6)).astype(np.float32)

    def nearest(rows: np.ndarray) -> float:
        distance = np.linalg.norm(features[rows][:, None] - features[rows][None], axis=2)
        return float(np.sort(distance, axis=1)[:, 1].min())

    assert nearest(spread(features, 16)) > 2 * nearest(np.arange(16))


def test_spread_rows_are_distinct_and_no_more_than_there_are() -> None:
    features = np.zeros((5, 3), np.float32)
    assert sorted(spread(features, 9).tolist()) == [0, 1, 2, 3, 4]
    assert spread(features, 0).tolist() == []


def test_spread_does_not_care_for_the_unit_of_a_feature() -> None:
    features = np.random.default_rng(2).random((100, 3)).astype(np.float32)
    scaled = features * np.array([1, 1000, 1], np.float32)
    np.testing.assert_array_equal(spread(features, 10), spread(scaled, 10))


def test_a_model_that_ranks_right_keeps_the_random_share_small() -> None:
    assert judged(0.2, -TIMES.astype(np.float32), TIMES) == pytest.approx(0.1)
    assert judged(EPSILON, -TIMES.astype(np.float32), TIMES) == EPSILON


def test_a_model_that_ranks_worse_than_chance_doubles_it_up_to_a_half() -> None:
    wrong = TIMES.astype(np.float32)
    assert judged(0.1, wrong, TIMES) == pytest.approx(0.2)
    assert judged(0.4, wrong, TIMES) == EPSILON_MOST


def test_a_batch_of_a_few_says_nothing() -> None:
    assert judged(0.1, TIMES[:7].astype(np.float32), TIMES[:7]) == 0.1

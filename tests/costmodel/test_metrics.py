"""Metrics say how well predictions rank what was measured."""

import numpy as np
import pytest
from scipy import stats

from hlotune.costmodel.metrics import (
    GroupedScores,
    kendall,
    mean_spearman,
    pairwise_accuracy,
    recall_at,
    spearman,
    top1_regret,
)
from hlotune.costmodel.ranking_quality import (
    fastest_quarter_accuracy,
    mean_quality,
    quality,
    r2_log_time,
)

SCORES = np.array([1.0, 0.8, 0.5, 0.0])


def test_metrics_of_a_perfect_ranking() -> None:
    predicted = np.array([9.0, 3.0, 2.0, -4.0])
    assert pairwise_accuracy(SCORES, predicted) == 1
    assert spearman(SCORES, predicted) == pytest.approx(1)
    assert kendall(SCORES, predicted) == pytest.approx(1)
    assert recall_at(2, SCORES, predicted) == 1
    assert top1_regret(SCORES, predicted) == 0


def test_metrics_of_a_ranking_turned_round() -> None:
    assert pairwise_accuracy(SCORES, -SCORES) == 0
    assert spearman(SCORES, -SCORES) == pytest.approx(-1)
    assert kendall(SCORES, -SCORES) == pytest.approx(-1)
    assert recall_at(2, SCORES, -SCORES) == 0
    assert top1_regret(SCORES, -SCORES) == float("inf")


def test_metrics_of_one_swapped_pair() -> None:
    predicted = np.array([0.8, 1.0, 0.5, 0.0])
    assert pairwise_accuracy(SCORES, predicted) == pytest.approx(5 / 6)
    assert kendall(SCORES, predicted) == pytest.approx(4 / 6)
    assert recall_at(1, SCORES, predicted) == 0
    assert top1_regret(SCORES, predicted) == pytest.approx(0.25)


def test_metrics_without_information_are_at_chance_level() -> None:
    flat = np.zeros(4)
    assert pairwise_accuracy(SCORES, flat) == 0.5
    assert pairwise_accuracy(flat, SCORES) == 0.5
    assert spearman(SCORES, flat) == kendall(SCORES, flat) == 0


def test_the_best_k_of_k_are_no_choice() -> None:
    assert np.isnan(recall_at(4, SCORES, SCORES))
    assert np.isnan(recall_at(3, np.array([]), np.array([])))


@pytest.mark.parametrize("digits", [0, 1, 8])
def test_groups_that_stay_are_ranked_as_each_of_them_alone(digits: int) -> None:
    rng = np.random.default_rng(1)
    scores, groups = rng.random(200), np.sort(rng.integers(0, 6, 200)).astype(np.int32)
    groups[groups == 2] = 7  # a gap, and an order that is no longer that of the numbers
    order = np.argsort(groups, kind="stable")
    scores, groups = np.round(scores[order], digits), groups[order]
    scores[groups == 3] = 0.5  # one that ranks nothing
    said = np.round(np.random.default_rng(0).standard_normal(200), digits)
    truth = GroupedScores(scores, groups)
    assert truth.correlation(said) == pytest.approx(mean_spearman(scores, said, groups), abs=1e-12)
    assert truth.correlation(0 * said) == 0


def test_ranks_are_correlated_as_scipy_does_ties_and_all() -> None:
    rng = np.random.default_rng(0)
    for digits in (1, 8):
        a, b = np.round(rng.standard_normal((2, 50)), digits)
        assert spearman(a, b) == pytest.approx(float(stats.spearmanr(a, b)[0]), abs=1e-12)


MANY = np.array([1, 0.98, 0.9, 0.8, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.04, 0], np.float32)


def test_among_the_fastest_close_pairs_do_not_count() -> None:
    """Among the fastest three 1.0 and 0.98 are too close to tell apart: their order is free."""
    swapped = MANY.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert fastest_quarter_accuracy(MANY, swapped) == 1
    assert fastest_quarter_accuracy(MANY, -MANY) == 0
    assert np.isnan(fastest_quarter_accuracy(np.ones(8, np.float32), MANY[:8]))


def test_r2_is_of_log_time_and_knows_no_unit_but_which_way_is_faster() -> None:
    assert r2_log_time(MANY, 3 * np.log(MANY + 1e-9) - 7) == pytest.approx(1)
    assert r2_log_time(MANY, -MANY) == 0
    assert r2_log_time(MANY, np.zeros(12, np.float32)) == 0
    assert np.isnan(r2_log_time(MANY[:2], MANY[:2]))


def test_a_mean_leaves_out_what_is_not_defined() -> None:
    flat = np.ones(8, np.float32)
    one = quality(MANY, MANY)
    mean = mean_quality([one, quality(flat, MANY[:8])])
    assert mean.fastest_quarter_accuracy == one.fastest_quarter_accuracy == 1
    assert mean.pairwise_accuracy == 0.75

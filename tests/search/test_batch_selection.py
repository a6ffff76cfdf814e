"""Which of many rows are a batch, and what is remembered of those that were measured."""

import numpy as np

from hlotune.search.searchers.batch_selection import apart, best_distinct
from hlotune.search.searchers.history import History, row_hash, scores
from tests.support.toy import ToySpace


def test_best_distinct_counts_a_row_once() -> None:
    rows = np.array([[0, 1], [0, 2], [0, 1], [0, 3]], np.int32)
    best = best_distinct(rows, np.array([5, 7, 5, 6], np.float32))
    np.testing.assert_array_equal(best, [[0, 2], [0, 3], [0, 1]])


def test_apart_fills_up_with_near_rows_where_others_run_out() -> None:
    rows = np.array([[0, 0, 0], [0, 0, 1], [0, 2, 2], [0, 2, 3]], np.int32)
    features = rows.astype(np.float32)
    np.testing.assert_array_equal(apart(rows, features, 2), rows[[0, 2]])
    np.testing.assert_array_equal(apart(rows, features, 3), rows[[0, 2, 1]])
    assert len(apart(rows, features, 9)) == 4


def test_rows_that_a_model_cannot_tell_apart_are_near() -> None:
    rows = np.array([[0, 0, 0], [0, 1, 1], [0, 2, 2]], np.int32)
    features = np.array([[1, 2], [1, 2], [1, 3]], np.float32)
    np.testing.assert_array_equal(apart(rows, features, 2), rows[[0, 2]])
    np.testing.assert_array_equal(apart(rows, features, 3), rows[[0, 2, 1]])


def test_row_hashes_of_a_million_rows_are_distinct() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(10, dtype=np.int32)] * 6), axis=-1).reshape(-1, 6)
    assert len(np.unique(row_hash(grid))) == len(grid)


def test_scores_are_one_for_the_best_and_zero_for_failures() -> None:
    np.testing.assert_allclose(scores(np.array([2.0, np.nan, 1.0])), [0.5, 0, 1])
    assert not scores(np.array([np.nan, np.nan])).any()


def test_a_history_keeps_the_first_time_of_a_config() -> None:
    space = ToySpace((4, 4))
    history = History(space)
    history.add(space.heuristic()[None, :], np.array([1.0]))
    history.add(space.heuristic()[None, :], np.array([0.5]))
    assert history.times_s.tolist() == [1.0]

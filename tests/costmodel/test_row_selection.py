"""Where there are more rows than a model has time for, each kernel keeps what it needs most."""

import time

import numpy as np
import pytest

from hlotune.costmodel.row_selection import fair_share, kept
from tests.support.made_rows import Groups, Scores


def in_turns(sizes: list[int]) -> tuple[Scores, Groups]:
    """Scores of groups of so many rows, in rounds of batches of ten."""
    rows = [(k // 10, group) for group, size in enumerate(sizes) for k in range(size)]
    groups = np.array([group for _, group in sorted(rows)], np.int32)
    return np.random.default_rng(0).random(len(groups)).astype(np.float32), groups


def test_all_rows_are_learned_where_there_is_time() -> None:
    scores, groups = in_turns([30, 50, 20])
    np.testing.assert_array_equal(groups[kept(scores, groups, 100)], groups)


def test_each_kernel_keeps_its_best_rows_and_the_newest_of_the_others() -> None:
    scores, groups = in_turns([50, 100, 50])
    rows = np.arange(200)[kept(scores, groups, 60)]
    assert len(rows) == 60 and (np.diff(rows) > 0).all()
    for group in range(3):
        members = np.flatnonzero(groups == group)
        best = set(members[np.argsort(-scores[members])][:10])
        newest = [row for row in members if row not in best][-10:]
        assert set(rows[groups[rows] == group]) == {*best, *newest}


def test_what_small_kernels_do_not_need_is_for_the_others() -> None:
    scores, groups = in_turns([8, 300, 400, 12])
    sizes = np.bincount(groups[kept(scores, groups, 220)])
    assert sizes.tolist() == [8, 100, 100, 12]


@pytest.mark.slow
def test_choosing_among_ten_thousand_rows_takes_a_hundredth_of_a_second() -> None:
    scores, groups = in_turns([250] * 40)
    start = time.perf_counter()
    for _ in range(10):
        kept(scores, groups, 2500)
    assert time.perf_counter() - start < 10 * 0.01


@pytest.mark.parametrize("sizes", [[9, 9, 9], [1, 2, 3, 40], [500], [7] * 50, [1, 1, 90, 1000]])
@pytest.mark.parametrize("most", [10, 26, 60])
def test_shares_fill_what_there_is_and_no_more(sizes: list[int], most: int) -> None:
    share = fair_share(sizes, most)
    learned = sum(min(size, share) for size in sizes)
    assert learned <= max(most, len(sizes))
    if sum(sizes) > most:
        assert sum(min(size, share + 1) for size in sizes) > most

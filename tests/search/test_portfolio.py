"""Searchers that share a batch: sizes of their parts, and who earns more of the next."""

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.search.searchers.portfolio import (
    ARMS,
    LEAST,
    MEMORY,
    START,
    Portfolio,
    credited,
    parts,
)
from tests.support.toy import ToySpace, heuristic_first


def test_parts_are_in_proportion_and_use_up_the_batch() -> None:
    assert parts(np.array([4.0, 2.0, 1.0, 1.0]), 64) == [32, 16, 8, 8]
    for n in (0, 1, 3, 17):
        assert sum(parts(np.array(START), n)) == n


def test_the_worst_still_gets_its_least_part() -> None:
    sizes = parts(np.array([1.0, 0.0]), 64)
    assert sizes[1] == pytest.approx(64 * LEAST, abs=1)


def test_who_found_the_best_of_a_batch_earns_most() -> None:
    before = np.ones(3)
    score = np.array([1.0, 0.2, 0.5, 0.9], np.float32)
    after = credited(before, np.array([0, 0, 1, -1]), score)
    assert after[0] == pytest.approx(MEMORY + (1 - MEMORY) * 4)
    assert after[0] > after[1]
    assert after[2] == 1  # had no part


def test_the_best_searcher_gets_more_and_more() -> None:
    credit = np.ones(2)
    for _ in range(10):
        credit = credited(credit, np.array([0, 1]), np.array([1.0, 0.3], np.float32))
    small, large = sorted(parts(credit, 64))
    assert large > 8 * small


def test_all_searchers_learn_from_what_one_found() -> None:
    space = ToySpace((8,) * 6, seed=1)
    search = Portfolio(space, Trees(), (0,), heuristic_first(space))
    for _ in range(3):
        batch = search.propose(32)
        search.observe(batch, space.times_s(batch))
    assert {len(arm.history) for arm in search._arms} == {96}
    assert len(search.credit) == len(ARMS)
    assert (search.credit != np.array(START)).any()

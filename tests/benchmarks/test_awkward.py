"""The race of awkward extents: one random search against several seeds of annealing."""

import pytest

from benchmarks.awkward import BLIND, GUIDED, Line, races, table
from benchmarks.learned import Race


def test_one_random_search_is_held_against_all_seeds() -> None:
    found = races("gemm_3x1021x769", 2)
    assert [(r.contestant, r.seed) for r in found] == [(BLIND, 0), (GUIDED, 0), (GUIDED, 1)]
    assert all(isinstance(r, Race) and r.case == "gemm_3x1021x769" for r in found)


def test_annealing_is_ahead_where_its_seeds_are_in_the_mean() -> None:
    ahead = Line("one", (1e-3, 1.2e-3), 1.5e-3)
    behind = Line("two", (1e-3, 1.04e-3), 1.01e-3)
    far = Line("three", (2e-3,), 1e-3)
    assert ahead.ratios == pytest.approx((1.5, 1.25))
    found = table([ahead, behind, far])
    assert [row[1:] for row in found.rows] == [
        ["2", "1.1", "1.2", "1.5", "1.369"],
        ["2", "1.02", "1.04", "1.01", "0.990"],
        ["1", "2", "2", "1", "0.500"],
    ]
    assert "annealing at least as good: 1 of 3; within 2%: 2" in found.notes

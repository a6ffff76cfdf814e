"""Positions of a loop are cut into runs, each of which becomes one loop."""

from bisect import bisect_right
from itertools import pairwise

import pytest

from hlotune.codegen.llvm.loop_splitting import runs


@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("special", [[], [8], [0, 36], [8, 12, 99]])
@pytest.mark.parametrize("cuts", [[], [0, 16], [0, 12, 13, 40]])
def test_a_run_has_the_positions_between_cuts_and_what_is_special_stands_alone(
    step: int, special: list[int], cuts: list[int]
) -> None:
    found = runs(range(0, 40, step), special, cuts)
    assert [p for run in found for p in run] == list(range(0, 40, step))
    for run in found:
        assert len(run) == 1 or not set(run) & set(special)
        assert len({bisect_right(cuts, p) for p in run}) == 1
    borders = [(a[-1], b[0]) for a, b in pairwise(found)]
    assert all(
        {a, b} & set(special) or bisect_right(cuts, a) != bisect_right(cuts, b) for a, b in borders
    )


def test_a_loop_of_any_length_is_cut_without_going_over_it() -> None:
    assert runs(range(10**15), [3], [0]) == [range(3), range(3, 4), range(4, 10**15)]


def test_no_positions_are_no_run() -> None:
    assert runs(range(0), [0], [0]) == []

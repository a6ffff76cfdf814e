"""Values that share a block of memory."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.codegen.runtime.shared_memory import Life, laid_out

pytestmark = pytest.mark.smoke

LIVES = st.lists(
    st.builds(
        lambda size, first, more: Life(size, first, first + more),
        st.integers(0, 1000),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=12,
)


@given(LIVES)
def test_values_that_live_at_the_same_time_do_not_overlap(lives: list[Life]) -> None:
    offsets, size = laid_out(lives)
    for (at, a), (other, b) in combinations(zip(offsets, lives, strict=True), 2):
        assert not a.meets(b) or at + a.bytes <= other or other + b.bytes <= at
    assert all(at % 64 == 0 <= at <= size - a.bytes for at, a in zip(offsets, lives, strict=True))


@given(LIVES)
def test_the_block_is_no_larger_than_all_values_one_behind_the_other(lives: list[Life]) -> None:
    assert laid_out(lives)[1] <= sum(-(-life.bytes // 64) * 64 for life in lives)


def test_a_chain_of_values_takes_turns_in_two_places() -> None:
    chain = [Life(640, i, i + 1) for i in range(9)]
    assert laid_out(chain) == ((0, 640) * 4 + (0,), 1280)


def test_a_small_value_goes_where_a_large_one_was() -> None:
    assert laid_out([Life(64, 2, 3), Life(6400, 0, 1), Life(64, 1, 2)]) == ((0, 0, 6400), 6464)


def test_nothing_takes_no_memory() -> None:
    assert laid_out([]) == ((), 0)

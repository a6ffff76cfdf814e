"""Calls of seconds are timed in what is left, and no more often than it takes to know."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import inf, isinf

import jax.numpy as jnp
import pytest

from hlotune.deploy.long_calls import FEWEST_LONG_PAIRS, Sides, Watched, rounds_in, rounds_s
from hlotune.measure.timing.comparison import ratio


@dataclass
class Calls:
    """Calls of both sides on a clock of their own; the last time of a side goes on."""

    times_s: tuple[Sequence[float], Sequence[float]]
    limit_s: float
    passed_s: float = 0.0
    made: list[int] = field(default_factory=list)

    def sample(self, side: int) -> float:
        times_s = chain(self.times_s[side], repeat(self.times_s[side][-1]))
        taken_s = next(s for n, s in enumerate(times_s) if n == self.made.count(side))
        self.made.append(side)
        self.passed_s += taken_s
        return taken_s

    def rounds(self, made: tuple[float, float] | None = (10.0, 7.0)) -> Sides:
        expected_s = self.times_s[0][0], self.times_s[1][0]
        return rounds_in(lambda: self.limit_s - self.passed_s, self.sample, made, expected_s)


def test_where_there_is_time_all_four_rounds_are_made_anew() -> None:
    calls = Calls(((10.0,), (7.0,)), 4 * 17.0)
    assert calls.rounds() == ((10.0,) * 4, (7.0,) * 4)
    assert calls.made == [0, 1, 1, 0, 0, 1, 1, 0]


def test_where_there_is_less_the_checked_call_is_the_first_of_the_tuned_program() -> None:
    calls = Calls(((10.0,), (7.0,)), 3 * 10.0 + 2 * 7.0)
    default_s, tuned_s = calls.rounds((11.0, 8.0))
    assert (default_s, tuned_s) == ((10.0,) * 3, (8.0, 7.0, 7.0))
    assert calls.made == [0, 1, 0, 0, 1]
    assert ratio(default_s, tuned_s).is_faster


def test_a_fourth_round_is_made_where_it_fits() -> None:
    calls = Calls(((10.0,), (7.0,)), 4 * 10.0 + 3 * 7.0)
    assert [len(s) for s in calls.rounds()] == [4, 4]


@pytest.mark.parametrize("limit_s", [27.0, 33.0, 43.0])
def test_without_time_for_three_rounds_two_show_and_prove_nothing(limit_s: float) -> None:
    calls = Calls(((10.0,), (7.0,)), limit_s)
    sides = calls.rounds()
    assert [len(s) for s in sides] == [2, 2]
    assert isinf(ratio(*sides).high) and not ratio(*sides).is_faster


def test_calls_that_are_faster_than_the_checked_ones_have_a_third_round_after_all() -> None:
    calls = Calls(((8.0,), (5.0,)), 3 * 8.0 + 2 * 5.0)
    assert calls.rounds() == ((8.0,) * 3, (7.0, 5.0, 5.0))


def test_without_time_for_one_round_the_checked_calls_are_all() -> None:
    assert Calls(((10.0,), (7.0,)), 9.0).rounds() == ((10.0,), (7.0,))


def test_without_a_checked_call_one_round_is_made_however_late_it_is() -> None:
    assert Calls(((10.0,), (7.0,)), -5.0).rounds(None) == ((10.0,), (7.0,))


def test_rounds_end_once_the_rest_can_prove_nothing() -> None:
    calls = Calls(((10.0,), (10.5, 9.5)), inf)
    assert calls.rounds() == ((10.0, 10.0), (10.5, 9.5))


def test_a_default_that_is_far_slower_is_called_in_two_rounds() -> None:
    calls = Calls(((10.0,), (2.0,)), 2 * 10.0 + 4 * 2.0)
    assert calls.rounds((10.0, 2.0)) == ((10.0,) * 4, (2.0,) * 4)
    assert calls.made.count(0) == 2
    late = Calls(((10.0,), (2.0,)), 2 * 10.0 + 2 * 2.0)
    assert late.rounds((10.0, 2.0)) == ((10.0,) * 3, (2.0,) * 3)
    assert late.made.count(0) == 2


@pytest.mark.parametrize("tuned_s", [2.0, 7.0, 10.0, 14.0])
@pytest.mark.parametrize("limit_s", [0.0, 10.0, 20.0, 40.0, 60.0, 90.0])
@pytest.mark.parametrize("slower", [1.0, 1.3])
def test_no_limit_is_missed_by_more_than_one_call(
    tuned_s: float, limit_s: float, slower: float
) -> None:
    """Though calls turn out to be slower than the checked ones were."""
    calls = Calls(((slower * 10.0,), (slower * tuned_s,)), limit_s)
    calls.rounds((10.0, tuned_s))
    assert calls.passed_s <= limit_s + max(10.0, tuned_s)


def test_rounds_are_expected_to_take_what_they_take() -> None:
    assert rounds_s(10.0, 7.0) == pytest.approx(3 * 17.0)
    assert rounds_s(10.0, 2.0) == pytest.approx(2 * 10.0 + 3 * 2.0)


def test_a_first_call_is_timed_without_what_xla_compiles() -> None:
    seen = list[float]()

    def function(x: jnp.ndarray) -> jnp.ndarray:
        seen.append(1.0)
        return jnp.sin(x)

    watched = Watched(function, "cpu")
    first, second = watched(jnp.ones(3)), watched(jnp.ones(3))
    assert len(seen) == 2 and (first == second).all()
    assert watched.first_s is None or 0 <= watched.first_s < 1.0
    assert FEWEST_LONG_PAIRS == 4

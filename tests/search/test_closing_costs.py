"""What the final of a kernel is expected to take, by what the kernel took before."""

from dataclasses import replace

import pytest

from hlotune.measure.timing.timing import BRIEF_S, BRIEF_SHARE, MOST_BRIEF
from hlotune.measure.workers.runner import COMPARING_S
from hlotune.search.budget.closing_costs import (
    UNKNOWN_FINAL_S,
    Costs,
    final_s,
    finals_s,
)
from hlotune.search.budget.reserve import Reserve, costs
from hlotune.search.finals.finals import FEWEST_PAIRS
from hlotune.search.tuner import Took
from tests.support.costly_device import contest
from tests.support.sessions import FakeProgram

COSTS = Costs(default_s=0.4, build_s=0.1, first_s=0.6, slowest_s=0.5)


def test_a_final_is_expected_to_take_what_its_parts_took() -> None:
    assert final_s(COSTS, 0) == pytest.approx(3 * 0.1 + 1.5 * (0.6 + 0.5) + 0.4)
    assert final_s(COSTS, 30) == pytest.approx(2.35 + 1.5 * 0.4)
    assert final_s(replace(COSTS, entrants=1), 0) == pytest.approx(2.15)
    assert final_s(Costs(default_s=0.4), 30) is None


def test_calls_longer_than_what_a_sample_takes_anyway_are_expected_to_take_their_time() -> None:
    short, long = replace(COSTS, call_s=1e-3), replace(COSTS, call_s=25e-3)
    assert final_s(short, 30) == final_s(COSTS, 30)
    assert (final_s(long, 30) or 0.0) - (final_s(COSTS, 30) or 0.0) == pytest.approx(
        30 * 4 * (25e-3 - 0.4 / 80)
    )


def test_rounds_that_are_short_beside_the_checks_are_expected_to_go_on() -> None:
    nothing_s, checks_s = final_s(COSTS, 0) or 0.0, 1.5 * (0.6 + 0.5) + 0.4
    assert final_s(COSTS, 9) == pytest.approx(nothing_s + BRIEF_SHARE * checks_s)
    assert final_s(replace(COSTS, is_clear=True), 9) == pytest.approx(nothing_s + 9 * 0.02)
    slow = replace(COSTS, first_s=60.0)
    most_s = (final_s(slow, 9) or 0.0) - (final_s(slow, 0) or 0.0)
    assert most_s == pytest.approx(MOST_BRIEF * 0.02), "no more than the most rounds take"
    quick = Costs(default_s=0.1, build_s=0.1, first_s=0.1, call_s=2e-3)
    assert (final_s(quick, 9) or 0.0) - (final_s(quick, 0) or 0.0) == pytest.approx(BRIEF_S)


def test_a_comparison_is_expected_to_end_where_the_runner_ends_it() -> None:
    minutes = replace(COSTS, call_s=0.9, is_seldom=False)
    assert final_s(minutes, 30) == pytest.approx((final_s(COSTS, 0) or 0.0) + COMPARING_S)


def test_a_default_of_seconds_is_expected_to_be_called_twice() -> None:
    """Its better form is known, and candidates many times as fast need no further call of it."""
    slow = final_s(replace(COSTS, call_s=3.0), 30)
    slower = final_s(replace(COSTS, call_s=5.0), 30)
    assert slow is not None and slower is not None
    assert slower - slow == pytest.approx(2 * (5.0 - 3.0))


def test_a_heat_is_expected_to_build_its_crowd_once_and_measure_it_twice() -> None:
    some = replace(COSTS, usual_s=0.2)
    assert final_s(some, 0) == pytest.approx(2.35)
    assert final_s(replace(some, crowd=8), 0) == pytest.approx(2.35 + 8 * (0.1 + 2 * 0.2))


def test_another_final_is_expected_to_take_by_half_longer_than_the_first_candidate_s() -> None:
    alone = Took(build_s=0.1, alone_s=0.8)
    searched = Took(build_s=0.1, trials_s=[1.0, 0.5, 0.5])
    contests = [contest(0, alone, usable=1), contest(1, searched, usable=128)]
    reserve = Reserve(contests, 60.0, FakeProgram(comparing_s=1.0, timing_s=1.0))
    assert reserve.another_s(contests[0]) == pytest.approx(3 * 0.1 + 1.5 * 0.8)
    assert reserve.another_s(contests[1]) > 16 * 2 * 0.5, "it has a heat"
    reserve.learn(contests[0], FEWEST_PAIRS, 2 * (0.1 + 1.5 * 0.8))
    assert reserve.another_s(contests[0]) == pytest.approx(2 * (3 * 0.1 + 1.5 * 0.8))


def test_where_pairs_are_fewest_no_heat_is_expected() -> None:
    had = contest(0, Took(build_s=0.1, trials_s=[0.6, 0.2, 0.2]), usable=64)
    assert costs(had, FEWEST_PAIRS + 1).crowd == 8
    assert costs(had, FEWEST_PAIRS).crowd == 0


def test_kernels_without_a_batch_take_what_others_take() -> None:
    assert finals_s([Costs(), Costs()], 9) == [UNKNOWN_FINAL_S] * 2
    known = final_s(COSTS, 9)
    assert known is not None
    assert finals_s([COSTS, Costs(default_s=0.2)], 9) == pytest.approx([known, known])


def test_a_run_that_goes_on_expects_the_default_to_take_what_the_oracle_took() -> None:
    assert final_s(replace(COSTS, default_s=None), 0) == pytest.approx(2.35 - 0.4 + 0.6)

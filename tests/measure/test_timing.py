"""Sampling with clocks that we make."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, cycle, islice, pairwise

import numpy as np
import pytest

from hlotune.measure.timing import timing
from hlotune.measure.timing.comparison import fewest_pairs, speedup
from hlotune.measure.timing.timing import (
    MOST_BRIEF,
    RESOLUTION_S,
    Effort,
    Steady,
    Subject,
    agree,
    calls_a_sample,
    interleaved,
    one_sample,
    sampled,
    settled,
    steady,
    turns,
)


def clock(*times_s: float) -> Callable[[], float]:
    values: Iterator[float] = cycle(times_s)
    return lambda: next(values)


def test_the_kernel_clock_takes_off_the_empty_call() -> None:
    assert one_sample(Subject(clock(1.0), clock(0.25)), 3) == 0.75


def test_the_call_clock_takes_nothing_off_and_makes_no_empty_call() -> None:
    def refuse() -> float:
        raise AssertionError("the call clock needs no empty call")

    assert one_sample(Subject(clock(1.0), refuse), 3, "call") == 1.0


def test_a_sample_is_the_median_of_its_calls() -> None:
    assert one_sample(Subject(clock(1.0, 9.0, 1.0), clock(0.0)), 3) == 1.0


def answers(*values: bool) -> Callable[[], bool]:
    """The last one for ever."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_a_sample_waits_until_the_threads_are_apart() -> None:
    apart = answers(False, False, True)
    assert settled(apart)
    assert steady(clock(0.1), apart) == 0.1


def test_a_sample_during_which_threads_came_together_is_taken_again() -> None:
    assert steady(clock(0.2, 0.1), answers(True, False, True, True)) == 0.1
    assert steady(clock(2.0, 1.0), answers(True, False, True, True)) == 2.0, "of a long call once"


def test_where_threads_never_come_apart_the_first_sample_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "_SETTLING_S", 0.001)
    assert steady(clock(2.0, 1.0), answers(False)) == 2.0


def test_samples_and_rounds_are_all_taken_apart() -> None:
    times = (0.1, 0.2, 0.1)  # a warm call, then the sample that is not steady
    subject = Subject(clock(*times, *[0.1] * 99), clock(0.0))
    one = Effort(least_samples=1, most_samples=1)
    assert sampled(subject, effort=one, apart=answers(True, False, True)) == (0.1,)
    subject = Subject(clock(*times, *[0.1] * 99), clock(0.0))
    subject.call()  # rounds have two warm calls
    rounds = interleaved([subject], pairs=1, limit_s=9, apart=answers(True, False, True))
    assert rounds == ((0.1,),)


def test_a_look_between_two_samples_is_the_last_of_one_and_the_first_of_the_other() -> None:
    number = count()
    subject, effort = Subject(clock(0.1), clock(0.0)), Effort(least_samples=4, most_samples=4)
    assert len(sampled(subject, effort=effort, apart=lambda: next(number) >= 0)) == 4
    assert next(number) == 1 + 4


def test_after_threads_came_together_the_next_sample_waits_again() -> None:
    looks = Steady(answers(True, False, False, True, True, True))
    assert looks.sample(clock(0.2, 0.1)) == 0.1
    assert looks.sample(clock(0.3)) == 0.3


def test_a_kernel_never_takes_less_than_the_resolution() -> None:
    assert one_sample(Subject(clock(1.0), clock(2.0)), 1) == RESOLUTION_S


def test_short_kernels_are_called_several_times_a_sample() -> None:
    assert calls_a_sample(10e-6) == 5
    assert calls_a_sample(1.0) == 1
    assert calls_a_sample(0.0) == Effort().most_calls


def test_a_hopeless_candidate_gets_one_sample() -> None:
    assert len(sampled(Subject(clock(1.0), clock(0.0)), best_s=0.3)) == 1


def counted(times_s: float, calls: list[float]) -> Callable[[], float]:
    def call() -> float:
        calls.append(times_s)
        return times_s

    return call


@pytest.mark.parametrize(("call_s", "best_s"), [(1.5, None), (0.5, 0.1)])
def test_a_call_of_seconds_or_a_long_one_without_hope_is_made_once(
    call_s: float, best_s: float | None
) -> None:
    calls: list[float] = []
    found = sampled(Subject(counted(call_s, calls), clock(0.0)), best_s=best_s)
    assert found == (call_s,)
    assert len(calls) == 1


def test_a_default_of_seconds_is_called_in_two_rounds_where_all_others_are_far_faster() -> None:
    slow: list[float] = []
    fast: list[float] = []
    subjects = [Subject(counted(4.0, slow), clock(0.0)), Subject(counted(0.1, fast), clock(0.0))]
    default_s, candidate_s = interleaved(subjects, pairs=9, limit_s=1e9)
    assert default_s == (4.0,) * 9
    assert candidate_s == (0.1,) * 9
    assert len(slow) == 2, "a call that warms up counts as the first round's"
    assert len(fast) > 9


def test_a_default_of_seconds_is_called_in_all_rounds_where_it_is_near_the_others() -> None:
    slow: list[float] = []
    subjects = [Subject(counted(4.0, slow), clock(0.0)), Subject(clock(2.0), clock(0.0))]
    interleaved(subjects, pairs=9, limit_s=1e9)
    assert len(slow) == 9


def test_a_hiccup_of_a_short_kernel_gets_a_second_look() -> None:
    times = iter([1e-3, 1e-3, 1e-3, *[1e-4] * 400])  # two warm calls, and the first sample
    subject = Subject(lambda: next(times), clock(0.0))
    assert len(sampled(subject, best_s=1e-4)) > 2


@pytest.mark.parametrize(
    ("best_s", "samples"), [(None, "most"), (0.095, "most"), (0.08, "least"), (0.05, "least")]
)
def test_a_candidate_near_the_best_gets_all_samples_and_others_few(
    best_s: float | None, samples: str
) -> None:
    effort = Effort(budget_s=100.0)
    found = sampled(Subject(clock(0.1), clock(0.0)), best_s=best_s, effort=effort)
    assert len(found) == {"most": effort.most_samples, "least": effort.least_samples}[samples]


def test_one_sample_that_is_near_the_best_asks_for_all() -> None:
    times = iter([0.1, 0.1, 0.1, 0.085, *[0.1] * 99])
    effort = Effort(budget_s=100.0)
    found = sampled(Subject(lambda: next(times), clock(0.0)), best_s=0.08, effort=effort)
    assert len(found) == effort.most_samples


def calls_of_one_sample(first_s: float, then_s: float) -> int:
    """All calls that are made for it, warm ones too."""
    number = count()
    subject = Subject(lambda: then_s if next(number) else first_s, clock(0.0))
    sampled(subject, effort=Effort(least_samples=1, most_samples=1))
    return next(number)


def test_a_short_kernel_has_two_warm_calls_and_a_long_one_has_one() -> None:
    assert calls_of_one_sample(1e-5, 1e-6) == 2 + Effort().most_calls
    assert calls_of_one_sample(1e-3, 1e-3) == 2 + 1
    assert calls_of_one_sample(12e-3, 12e-3) == 1 + 1


@pytest.mark.parametrize("first_s", [0.6e-3, 8e-3])
def test_a_slow_first_call_makes_no_short_kernel_a_long_one(first_s: float) -> None:
    assert calls_of_one_sample(first_s, 2e-6) == 2 + calls_a_sample(2e-6)


@pytest.mark.parametrize("slow", [0, 1])
def test_one_slow_warm_call_makes_no_short_kernel_of_a_comparison_a_long_one(slow: int) -> None:
    number = count()
    subject = Subject(lambda: 0.6e-3 if next(number) == slow else 2e-6, clock(0.0))
    interleaved([subject], pairs=1, limit_s=9)
    assert next(number) == 2 + calls_a_sample(2e-6)


def test_sampling_stops_when_the_budget_is_spent() -> None:
    effort = Effort(budget_s=0.0, least_samples=4)
    assert len(sampled(Subject(clock(0.1), clock(0.0)), effort=effort)) <= 4


def test_the_warm_up_is_not_counted() -> None:
    slow_start = iter([0.5, *[0.01] * 100])
    assert max(sampled(Subject(lambda: next(slow_start), clock(0.0)))) == 0.01


def test_interleaved_samples_come_in_rounds() -> None:
    seen: list[str] = []

    def subject(name: str) -> Callable[[], float]:
        def call() -> float:
            seen.append(name)
            return 1.0

        return call

    subjects = [Subject(subject(name), clock(0.0)) for name in "ab"]
    times = interleaved(subjects, pairs=4, limit_s=10.0)
    assert [len(t) for t in times] == [4, 4]
    last = "".join(seen[-8:])
    assert last == "abbabaab"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_each_kernel_stands_as_often_at_every_place_and_behind_any_other(count: int) -> None:
    orders = list(islice(turns(count), 2 * count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert all(b == a[::-1] for a, b in zip(orders[::2], orders[1::2], strict=True))
    places = Counter((k, x) for order in orders for k, x in enumerate(order))
    assert set(places.values()) == {2} and len(places) == count**2
    behind = Counter(pair for order in orders for pair in pairwise(order))
    assert set(behind.values()) == {2} and len(behind) == count * (count - 1)


def test_of_a_finals_31_rounds_none_of_six_is_favoured() -> None:
    line = [x for order in islice(turns(6), 31) for x in order]
    behind = Counter(pairwise(line))
    for who in range(6):
        assert 2 <= behind[who, who] <= 3
        assert all(5 <= behind[who, other] <= 8 for other in range(6) if other != who)


def test_interleaved_samples_end_at_the_limit_but_not_before_they_prove_something() -> None:
    times = interleaved([Subject(clock(1.0), clock(0.0))], pairs=100, limit_s=0.0)
    assert len(times[0]) == 6


def test_rounds_may_end_where_all_of_them_agree() -> None:
    def rounds(*times_s: float, agreed_s: float = 0.0) -> int:
        subjects = [Subject(clock(s), clock(0.0)) for s in times_s]
        return len(interleaved(subjects, pairs=20, limit_s=9.0, clock="call", agreed_s=agreed_s)[0])

    assert rounds(1.0, 2.0) == rounds(2.0, 1.0, 4.0) == 6
    assert rounds(1.0, 1.05) == rounds(1.0, 2.0, 2.1) == 20
    assert rounds(1.0, 2.0, agreed_s=9.0) == 20


def test_short_rounds_that_do_not_agree_go_on_for_a_while() -> None:
    """The fewest pairs of short calls prove little, and more take next to no time."""

    def rounds(*times_s: float, brief_s: float = 9.0) -> int:
        subjects = [Subject(clock(s), clock(0.0)) for s in times_s]
        return len(interleaved(subjects, pairs=9, limit_s=9.0, clock="call", brief_s=brief_s)[0])

    assert rounds(1.0, 1.05) == MOST_BRIEF
    assert rounds(1.0, 2.0) == 9
    assert rounds(1.0, 1.05, brief_s=0.0) == 9


def test_rounds_that_go_on_prove_what_few_do_not() -> None:
    luck = np.random.default_rng(1)

    def noisy(time_s: float) -> Callable[[], float]:
        return lambda: float(time_s * np.exp(luck.normal(0, 0.25)))

    def proven(brief_s: float) -> int:
        found = 0
        for _ in range(40):
            subjects = [Subject(noisy(s), clock(0.0)) for s in (1.25, 1.0)]
            one_s, other_s = interleaved(
                subjects, pairs=9, limit_s=9.0, clock="call", brief_s=brief_s
            )
            found += speedup(one_s, other_s).is_faster
        return found

    assert proven(0.0) < 20 < 36 < proven(9.0)


def test_equal_kernels_are_seldom_told_apart_however_the_rounds_go_on() -> None:
    luck = np.random.default_rng(2)

    def noisy() -> float:
        return float(np.exp(luck.normal(0, 0.1)))

    wins = 0
    for _ in range(200):
        subjects = [Subject(noisy, clock(0.0))] * 2
        one_s, other_s = interleaved(subjects, pairs=9, limit_s=9.0, clock="call", brief_s=9.0)
        wins += speedup(one_s, other_s).is_faster
    assert wins <= 10


def test_rounds_agree_where_each_has_the_same_order_clearly() -> None:
    assert agree([{0: 1.0, 1: 2.0}, {0: 3.0, 1: 3.4}])
    assert not agree([{0: 1.0, 1: 2.0}, {0: 2.0, 1: 1.0}])
    assert not agree([{0: 1.0, 1: 2.0}, {0: 1.0, 1: 1.05}])


def test_several_need_more_rounds_before_time_is_up() -> None:
    subject = Subject(clock(1.0), clock(0.0))
    times = interleaved([subject] * 6, pairs=100, limit_s=0.0, least=fewest_pairs(5))
    assert len(times[0]) == fewest_pairs(5) == 8
    assert [fewest_pairs(n) for n in (1, 3)] == [6, 7]

"""The budget goes where the program gains most, is kept, and is not spent in vain."""

from math import ceil

import pytest

from hlotune.search.budget.budget import (
    BATCH,
    FIRST,
    SMALLEST,
    Choice,
    finishing,
    longest_s,
    needed_s,
    next_batch,
)
from hlotune.search.budget.limits import Limits, less, seconds
from hlotune.search.budget.promises import HOPE, YOUNG, idle_trials, promise, promised_share
from hlotune.search.budget.spent import UNKNOWN_TRIAL_S, Item, Spent, best_s, trial_s

ITEMS = (Item(1e-3, 1), Item(2e-3, 4), Item(5e-3, 1))
"""Shares of the program: 1, 8 and 5 ms."""
PLENTY = Limits(seconds=1e6)


def spent(item: int, *bests: float, wall_s: float = 6.4) -> tuple[Spent, ...]:
    """Full batches of one kernel, at 0.1 s a trial."""
    return tuple(Spent(item, BATCH, wall_s, best) for best in bests)


def chosen(*history: Spent, limits: Limits = PLENTY, elapsed_s: float = 0) -> int | None:
    choice = next_batch(ITEMS, history, limits, elapsed_s)
    return None if choice is None else choice.item


def test_of_fresh_kernels_one_that_runs_often_comes_before_a_long_one_at_its_limit() -> None:
    head, in_a_loop = Item(90e-3, 1, least_s=85e-3), Item(1e-3, 50, least_s=0.3e-3)
    choice = next_batch((head, in_a_loop), (), Limits(seconds=45.0), 0.0)
    assert choice is not None
    assert choice.item == 1


def test_every_kernel_gets_a_first_batch_the_costliest_first() -> None:
    history: tuple[Spent, ...] = ()
    order = []
    for _ in ITEMS:
        order.append(chosen(*history))
        history += spent(order[-1] or 0, 1e-3)
    assert order == [1, 2, 0]


def test_after_that_the_largest_expected_gain_of_the_program_decides() -> None:
    first = spent(0, 1e-3) + spent(1, 2e-3) + spent(2, 5e-3)
    assert chosen(*first) == 1
    # Kernel 1 stops gaining, kernel 2 does not: 5 ms * 20 % against 8 ms * 2.5 %.
    assert chosen(*first, *spent(1, 2e-3, 2e-3), *spent(2, 4e-3)) == 2


def test_a_kernel_that_runs_more_often_is_worth_more() -> None:
    items = (Item(1e-3, 1), Item(1e-3, 3))
    history = spent(0, 1e-3) + spent(1, 1e-3)
    assert promise(1, items, history, PLENTY) == pytest.approx(
        3 * promise(0, items, history, PLENTY)
    )


def test_a_kernel_whose_trials_take_longer_promises_less_a_second() -> None:
    items = (Item(1e-3, 1), Item(1e-3, 1))
    history = spent(0, 1e-3, wall_s=6.4) + spent(1, 1e-3, wall_s=3.2)
    assert promise(1, items, history, PLENTY) == pytest.approx(
        2 * promise(0, items, history, PLENTY)
    )


def test_where_trials_are_limited_no_clock_decides() -> None:
    items = (Item(1e-3, 1), Item(1e-3, 1))
    history = spent(0, 1e-3, wall_s=6.4) + spent(1, 1e-3, wall_s=3.2)
    limits = Limits(trials=512)
    assert promise(1, items, history, limits) == promise(0, items, history, limits)


def test_what_small_batches_gain_counts_like_what_a_large_one_gains() -> None:
    small = tuple(Spent(0, 16, 1.6, 1e-3 * 0.5 ** (n / 4)) for n in range(13))
    large = tuple(Spent(0, 64, 6.4, 1e-3 * 0.5**n) for n in range(4))
    assert promised_share(0, small) == pytest.approx(0.5)
    assert promised_share(0, large) == pytest.approx(0.5)


def test_a_small_lucky_batch_is_not_expected_to_repeat_itself_four_times() -> None:
    assert promised_share(0, (Spent(0, 64, 1, 1e-3), Spent(0, 16, 1, 0.8e-3))) == pytest.approx(0.2)


def test_the_default_counts_while_nothing_better_is_known() -> None:
    assert best_s(0, ITEMS, spent(0, 4e-3)) == 1e-3
    assert best_s(0, ITEMS, spent(0, 4e-3, 0.5e-3)) == 0.5e-3
    assert best_s(0, (Item(1e-3, 1, known_best_s=0.2e-3),), ()) == 0.2e-3


def test_a_promise_is_the_mean_of_the_recent_gains() -> None:
    history = spent(0, 1.0, 0.5, 0.4, 0.32, 0.256)
    assert promised_share(0, history) == pytest.approx(0.2)


def test_a_promise_fades_with_idle_batches() -> None:
    shares = [promised_share(0, spent(0, *[1e-3] * n)) for n in (1, 2, 3, 4)]
    assert shares == pytest.approx([0.1, 0.05, 0.025, 0.0125])


def test_a_gain_of_less_than_a_hundredth_leaves_a_kernel_idle() -> None:
    assert promised_share(0, spent(0, 1e-3, 0.995e-3)) == pytest.approx(0.05)
    assert promised_share(0, spent(0, 1e-3, 0.98e-3)) == pytest.approx(0.1)


def test_small_gains_that_add_up_to_more_count() -> None:
    creeping = spent(0, 1e-3, 0.996e-3, 0.992e-3, 0.988e-3, 0.984e-3)
    assert idle_trials(creeping) == 128


def test_a_gain_of_before_promises_less_the_longer_nothing_follows_it() -> None:
    assert promised_share(0, spent(0, 1e-3, 0.5e-3)) == pytest.approx(0.5)
    later = promised_share(0, spent(0, 1e-3, 0.5e-3, 0.5e-3))
    assert later == pytest.approx((1 - 0.5**0.5) / 2)


def test_a_kernel_that_was_searched_in_vain_waits_for_half_as_large_ones() -> None:
    items = (Item(1e-3, 1.0), Item(0.6e-3, 1.0))
    once = (Spent(0, 1, 1.5, 1e-3, is_search=False), Spent(1, 1, 1.5, 0.6e-3, is_search=False))
    idle = Spent(0, 32, 6.4, 1e-3)
    plenty = Limits(seconds=1e3)
    chosen_ones = [next_batch(items, spent, plenty, 10.0) for spent in (once, (*once, idle))]
    assert [c and c.item for c in chosen_ones] == [0, 1]


def test_a_kernel_whose_candidates_all_fail_fades_too() -> None:
    inf = float("inf")
    assert promised_share(0, spent(0, inf, inf)) == pytest.approx(0.05)
    assert promised_share(0, spent(0, inf, 1e-3)) == pytest.approx(1.0)


def test_the_run_stops_early_when_no_kernel_promises_more_than_a_hundredth() -> None:
    idle = tuple(s for k in range(3) for s in spent(k, *[1e-3] * 5))
    assert chosen(*idle) is None
    assert chosen(*idle[:-1]) == 2


def test_trials_are_counted_for_each_kernel_and_used_up() -> None:
    limits = Limits(trials=100)
    history: tuple[Spent, ...] = ()
    while choice := next_batch(ITEMS, history, limits, 0):
        history += (Spent(choice.item, choice.trials, 1.0, 1e-3),)
    assert [sum(s.trials for s in history if s.item == k) for k in range(3)] == [100, 100, 100]
    assert [s.trials for s in history[:3]] == [YOUNG] * 3


def test_batches_are_small_at_first_and_grow_with_what_was_measured() -> None:
    history: tuple[Spent, ...] = ()
    while choice := next_batch(ITEMS[:1], history, Limits(trials=1000), 0):
        history += (Spent(choice.item, choice.trials, 1.0, 1e-3),)
    sizes = [s.trials for s in history]
    assert sizes[:16] == [16] * 16
    assert sizes[16:20] == [32] * 4
    assert max(sizes) == BATCH
    assert sum(sizes) == 1000


def test_the_last_tenth_of_the_trials_goes_in_small_batches_of_its_own() -> None:
    done: tuple[Spent, ...] = (Spent(0, 500, 1.0, 1e-3),)
    limits = Limits(trials=600)
    assert next_batch(ITEMS[:1], done, limits, 0) == Choice(0, 40)
    done += (Spent(0, 40, 1.0, 1e-3),)
    assert next_batch(ITEMS[:1], done, limits, 0) == Choice(0, YOUNG)
    assert finishing(0, done, limits, 0)


def test_few_trials_have_no_finish() -> None:
    limits = Limits(trials=20)
    assert next_batch(ITEMS[:1], (Spent(0, 16, 1.0, 1e-3),), limits, 0) == Choice(0, 4)
    assert not finishing(0, (Spent(0, 19, 1.0, 1e-3),), limits, 0)


def test_a_handful_of_trials_is_a_legal_budget() -> None:
    assert next_batch(ITEMS, (), Limits(trials=3), 0) == Choice(1, 3)


def test_exhausted_kernels_get_nothing_more() -> None:
    choice = next_batch(ITEMS, (), PLENTY, 0, exhausted=frozenset({1}))
    assert choice is not None
    assert choice.item == 2
    assert next_batch(ITEMS, (), PLENTY, 0, exhausted=frozenset({0, 1, 2})) is None


def test_a_short_budget_gives_every_kernel_a_smaller_first_batch() -> None:
    first = next_batch(ITEMS, (), Limits(seconds=12), 0)
    assert first == Choice(1, 16)  # 12 s, three kernels, a quarter of a second assumed for a trial
    second = next_batch(ITEMS, (Spent(1, 16, 0.8, 1e-3),), Limits(seconds=5), 0.8)
    assert second == Choice(2, YOUNG)  # 4.2 s, two kernels, 0.05 s known: 42 would fit


def test_a_first_batch_takes_its_part_of_what_is_left_at_most() -> None:
    assert longest_s(Choice(0, 16), fresh=8, left_s=40.0) == 5.0
    assert longest_s(Choice(0, 16), fresh=1, left_s=40.0) == 40.0
    assert longest_s(Choice(0, 64), fresh=0, left_s=40.0) == 40.0
    assert longest_s(Choice(0, FIRST), fresh=50, left_s=20.0) == 20.0


def test_with_too_many_kernels_the_costliest_get_the_smallest_batch() -> None:
    items = tuple(Item(1e-3 * (k + 1), 1) for k in range(50))
    assert next_batch(items, (), Limits(seconds=20), 0) == Choice(49, FIRST)


def test_the_last_batch_shrinks_to_what_is_left_and_then_nothing_is_chosen() -> None:
    begun = spent(0, 1e-3) + spent(1, 1e-3) + spent(2, 1e-3)
    limits = Limits(seconds=21)
    assert next_batch(ITEMS, begun, limits, 19.0) == Choice(1, 16)
    assert next_batch(ITEMS, begun, limits, 19.9) == Choice(1, 11)
    assert next_batch(ITEMS, begun, limits, 20.5) is None


@pytest.mark.parametrize("budget_s", [5.0, 20.0, 60.0, 300.0])
@pytest.mark.parametrize("trial_s", [0.02, 0.1, 0.24])
def test_a_budget_in_seconds_is_kept(budget_s: float, trial_s: float) -> None:
    """Trials take up to a third more or less than the last batch's; gains never end."""
    history: tuple[Spent, ...] = ()
    elapsed_s, best = 0.0, 1e-3
    while choice := next_batch(ITEMS, history, Limits(seconds=budget_s), elapsed_s):
        best *= 0.9
        fresh = max(0, len(ITEMS) - len(history))
        each_s = trial_s * (1 + 0.33 * (-1) ** len(history))
        most = ceil(longest_s(choice, fresh, budget_s - elapsed_s) / each_s)
        trials = min(choice.trials, most)
        history += (Spent(choice.item, trials, trials * each_s, best),)
        elapsed_s += trials * each_s
    assert elapsed_s <= budget_s + 1.33 * trial_s  # a trial that has begun ends
    assert elapsed_s > budget_s - SMALLEST * 1.33 * trial_s


def test_choices_replay() -> None:
    history: tuple[Spent, ...] = ()
    choices = []
    for n in range(12):
        choice = next_batch(ITEMS, history, PLENTY, 10.0 * n)
        assert choice is not None
        choices.append(choice)
        history += (Spent(choice.item, choice.trials, 5.0, 1e-3 * 0.8**n),)
    replayed = [next_batch(ITEMS, history[:n], PLENTY, 10.0 * n) for n in range(12)]
    assert replayed == choices


def test_what_has_passed_or_is_put_by_is_not_for_batches() -> None:
    assert less(Limits(seconds=600), 27.0) == Limits(seconds=573)
    assert less(Limits(seconds=1), 5.0) == Limits(seconds=0)
    assert less(Limits(trials=9), 5.0) == Limits(trials=9)


def test_a_first_batch_leaves_time_for_the_final_that_follows_from_it() -> None:
    """12 s, three kernels, a quarter of a second assumed for a trial."""
    assert next_batch(ITEMS, (), Limits(seconds=12), 0, final_s=1.0) == Choice(1, 12)
    assert next_batch(ITEMS, (), Limits(seconds=12), 0, final_s=3.0) == Choice(1, 4)
    assert next_batch(ITEMS, (), Limits(seconds=12), 0, final_s=5.0) == Choice(1, FIRST)
    assert next_batch(ITEMS, (), Limits(seconds=12), 0, final_s=11.6) is None


def test_what_has_had_its_batch_has_its_final_put_by_already() -> None:
    begun = spent(0, 1e-3) + spent(1, 1e-3) + spent(2, 1e-3)
    limits = Limits(seconds=21)
    assert next_batch(ITEMS, begun, limits, 19.0, final_s=10.0) == Choice(1, 16)


def test_a_budget_that_is_said_to_suffice_does() -> None:
    limits = Limits(seconds=needed_s(3, passed_s=5, closing_s=9))
    assert limits.seconds == 20
    left = less(limits, 5)
    assert next_batch(ITEMS, (), left, 0, final_s=3.0) == Choice(1, SMALLEST)


def test_the_last_tenth_is_for_finishing() -> None:
    history = spent(0, *[1e-3] * 14)  # 896 trials
    assert not finishing(0, history, Limits(trials=1000), 0)
    assert finishing(0, (*history, Spent(0, 4, 1, 1e-3)), Limits(trials=1000), 0)
    assert not finishing(0, history, Limits(seconds=100), 89)
    assert finishing(0, history, Limits(seconds=100), 90)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("90", 90), ("90s", 90), ("2m", 120), ("1h30m", 5400), ("1.5m", 90), (45, 45), (0.5, 0.5)],
)
def test_budgets_are_read(text: str | float, expected_s: float) -> None:
    assert seconds(text) == expected_s


@pytest.mark.parametrize("text", ["", "fast", "2x", "0", "-3s", "1.2.3m", "m", 0, "inf"])
def test_other_budgets_are_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="expected a budget like 90s, 2m or 1h30m"):
        seconds(text)


def test_a_first_candidate_s_final_says_nothing_about_what_a_trial_takes() -> None:
    quick = [Spent(k, 1, 2.0, 1e-3, is_search=False) for k in range(3)]
    searched = [*quick, Spent(0, 16, 1.6, 1e-3)]
    assert [trial_s(k, searched) for k in range(3)] == [0.1] * 3
    assert trial_s(1, quick) == UNKNOWN_TRIAL_S
    # So the next batch goes where most is to be gained, and not on with the kernel that had one.
    choice = next_batch(ITEMS, searched, PLENTY, 0, again_s={1: 1.0, 2: 3.0})
    assert choice is not None and choice.item == 1 and choice.final_s == 1.0


def test_the_gain_over_a_first_candidate_says_nothing_about_the_next_trials() -> None:
    first = Spent(0, 1, 2.0, 1e-3, is_search=False)
    batch = Spent(0, 16, 1.6, 0.7e-3)
    assert promised_share(0, [first, batch]) == promised_share(0, [batch]) == HOPE
    further = Spent(0, 16, 1.6, 0.6e-3)
    assert promised_share(0, [first, batch, further]) == promised_share(0, [batch, further]) > HOPE
    in_vain = Spent(0, 16, 1.6, 1e-3)
    assert promised_share(0, [first, in_vain]) < HOPE


def test_kernels_of_which_the_first_candidate_alone_is_known_are_searched_in_turn() -> None:
    """Each gets a first batch, as long as those searched are not worth several times as much."""
    items = [Item(1e-3, weight) for weight in (3.0, 2.0, 1.0)]
    history = [Spent(k, 1, 1.0, 0.5e-3, is_search=False) for k in range(3)]
    for expected in (0, 1, 2):
        choice = next_batch(items, history, PLENTY, 0, again_s=dict.fromkeys(range(3), 1.5))
        assert choice is not None and (choice.item, choice.trials) == (expected, YOUNG)
        history.append(Spent(choice.item, YOUNG, 4.0, 0.4e-3))


def test_another_final_counts_as_much_as_it_takes_of_that_kernel() -> None:
    """Kernels of the same promise, of which one has long calls."""
    items = [Item(1e-3, 1.0), Item(1e-3, 1.0)]
    history = [Spent(k, 1, 1.0, 0.5e-3, is_search=False) for k in range(2)]
    choice = next_batch(items, history, PLENTY, 0, again_s={0: 6.0, 1: 1.0})
    assert choice is not None and choice.item == 1
    few = Limits(seconds=4.5)
    assert next_batch(items, history, few, 0, again_s={0: 6.0, 1: 1.0}) is not None
    assert next_batch(items, history, few, 0, again_s={0: 6.0, 1: 6.0}) is None

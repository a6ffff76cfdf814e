"""What paired samples prove, with noise that we make."""

import random
from collections.abc import Callable
from math import log

import pytest

from hlotune.measure.timing.comparison import Ratio, interval_rank, ratio, shared


def test_several_share_the_error_of_one() -> None:
    assert shared(2) == pytest.approx(0.975)


def test_a_candidate_faster_in_every_round_wins() -> None:
    found = ratio([2.0] * 8, [1.0] * 8)
    assert found == Ratio(2.0, 2.0, 2.0)
    assert found.is_faster


def test_a_candidate_faster_in_half_of_the_rounds_does_not_win() -> None:
    assert not ratio([2.0, 1.0] * 8, [1.0, 1.2] * 8).is_faster


def test_five_pairs_of_short_calls_prove_nothing() -> None:
    assert not ratio([0.2] * 5, [0.1] * 5).is_faster


def test_four_pairs_of_long_calls_are_enough_where_all_of_one_side_are_slower() -> None:
    assert ratio([3.0, 3.2, 3.0, 3.2], [1.0, 1.6, 1.5, 1.0]) == Ratio(2.5, 1.875, 3.2)
    assert not ratio([3.0, 3.2, 3.1, 3.3], [1.0, 1.5, 1.2, 3.1]).is_faster
    assert not ratio([3.0] * 4, [1.0] * 4, shared(3)).is_faster, "three share the error of one"


def test_three_pairs_of_long_calls_prove_what_is_large_beside_their_noise() -> None:
    found = ratio([3.0, 3.3, 3.0], [1.5, 1.6, 1.4])
    assert 1.6 < found.low < found.median < found.high < 2.6
    assert not ratio([3.0, 3.3, 3.0], [2.6, 2.9, 2.4]).is_faster, "though each is faster"
    assert not ratio([3.0] * 2, [1.0] * 2).is_faster, "two prove nothing"
    assert not ratio([3.0] * 3, [1.0] * 3, shared(2)).is_faster, "two share the error of one"
    assert not ratio([0.3] * 3, [0.1] * 3).is_faster, "of short calls they prove nothing"


def _two_speeds(rng: random.Random, slow: float, noise: float) -> float:
    return 2.0 * (1.3 if rng.random() < slow else 1.0) * rng.lognormvariate(0, noise)


Noise = Callable[[random.Random], float]
NOISES: dict[str, Noise] = {
    "steady": lambda rng: rng.lognormvariate(0, 0.001),
    "normal": lambda rng: rng.lognormvariate(0, 0.1),
    "uniform": lambda rng: (2.0 + rng.random()) / 2.5,
    "a tail": lambda rng: (2.0 + rng.expovariate(2.0)) / (2.0 + log(2) / 2),
    "a heavy tail": lambda rng: rng.paretovariate(1.5) / 2 ** (1 / 1.5),
}
"""Kinds of noise around a median of 1."""
SPEEDS: dict[str, Noise] = {
    "seldom slow": lambda rng: _two_speeds(rng, 0.3, 0.01),
    "two speeds": lambda rng: _two_speeds(rng, 0.5, 0.01),
    "both": lambda rng: _two_speeds(rng, 0.5, 0.06),
}


def claimed(default: Noise, tuned: Noise) -> float:
    """The share of comparisons of three pairs that claim a gain where there is none."""
    rng, tries = random.Random(5), 5_000

    def claims() -> bool:
        pairs = [(2.0 * default(rng), 2.0 * tuned(rng)) for _ in range(3)]
        return ratio([d for d, _ in pairs], [t for _, t in pairs]).is_faster

    return sum(claims() for _ in range(tries)) / tries


@pytest.mark.parametrize("noise", [*NOISES, *SPEEDS])
def test_three_pairs_claim_no_gain_by_chance_in_more_than_two_of_a_hundred(noise: str) -> None:
    one = (NOISES | SPEEDS)[noise]
    assert claimed(one, one) <= 0.024  # 0.02, and luck


@pytest.mark.parametrize("default", NOISES)
@pytest.mark.parametrize("tuned", NOISES)
def test_nor_in_more_than_six_where_one_side_varies_more(default: str, tuned: str) -> None:
    assert claimed(NOISES[default], NOISES[tuned]) <= 0.066  # 0.06, and luck


@pytest.mark.parametrize(("pairs", "rank"), [(5, 0), (6, 1), (9, 2), (15, 4), (25, 8)])
def test_ranks_are_those_of_the_tables_of_the_sign_test(pairs: int, rank: int) -> None:
    assert interval_rank(pairs, 0.95) == rank


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = random.Random(7)

    def holds(pairs: int) -> bool:
        noisy = [
            (2.2 * rng.lognormvariate(0, 0.1), rng.lognormvariate(0, 0.1)) for _ in range(pairs)
        ]
        found = ratio([d for d, _ in noisy], [c for _, c in noisy])
        return found.low <= 2.2 <= found.high

    assert sum(holds(15) for _ in range(400)) >= 0.93 * 400
    assert sum(holds(4) for _ in range(400)) >= 0.95 * 400

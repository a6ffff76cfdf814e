"""A default that runs at two speeds is said to, and counts by its fast one."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from hlotune.measure.timing.comparison import counted, ratio, speedup
from hlotune.measure.timing.modes import fast_time_s, modes

RECORDED = {
    "56x56x64, mostly slow": (
        [2.47, 1.31, 2.44, 2.47, 2.51, 2.46, 1.73, 2.45, 2.46, 2.47, 2.43, 2.48, 2.54, 2.36],
        1.52,
    ),
    "56x56x64, as often fast as slow": (
        [1.97, 2.46, 1.99, 2.42, 2.44, 1.96, 1.26, 2.42, 2.43, 1.25, 1.28, 1.32, 1.24, 1.24, 1.25],
        1.25,
    ),
    "28x28x128": ([0.80, 0.83, 1.62, 1.57, 1.44, 0.86, 1.62, 1.57, 1.58], 0.83),
    "56x56x64, another day": (
        [1.28, 1.35, 1.29, 1.27, 1.25, 2.46, 2.51, 2.49, 1.36, 1.45],
        1.29,
    ),
    "28x28x128 of an older release": ([1.30, 2.42, 1.33, 2.40, 2.62, 1.31], 1.31),
}
STEADY = {
    "one speed": [1.61, 1.55, 1.59, 1.57, 1.54, 1.54, 1.53, 1.60, 1.60, 1.61, 1.62, 1.63, 1.57],
    "one late call": [1.30, 1.32, 1.29, 1.28, 1.30, 1.39, 4.18, 1.40, 1.35, 1.36, 1.31, 1.36],
    "a machine that grows slower": [1.0 + 0.05 * n for n in range(20)],
    "few": [1.3, 2.5, 1.3],
    "one": [1.3],
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_samples_in_two_modes_count_by_the_fast_one(name: str) -> None:
    samples, fast = RECORDED[name]
    found = modes(samples)
    assert found is not None
    assert found.fast_s == fast_time_s(samples) == pytest.approx(fast, rel=0.02)
    assert found.slow_s > 1.4 * found.fast_s
    assert found.slow_share == pytest.approx(np.mean([x >= found.below_s for x in samples]))


@pytest.mark.parametrize("name", STEADY)
def test_samples_about_one_time_have_one_mode(name: str) -> None:
    samples = STEADY[name]
    assert modes(samples) is None
    assert fast_time_s(samples) == np.median(samples)
    assert counted(samples, samples) == tuple(samples)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.2])
def test_noise_is_seldom_taken_for_two_modes(spread: float) -> None:
    random = np.random.default_rng(0)
    noise = np.exp(random.normal(0, spread, (400, 31)))
    assert sum(modes(list(line)) is not None for line in noise) <= 20


@pytest.mark.parametrize("share", [0.15, 0.5, 0.8])
def test_two_speeds_are_found_whatever_their_shares(share: float) -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        slow = np.arange(31) < round(share * 31)
        samples = np.where(slow, 2.45, 1.3) * np.exp(random.normal(0, 0.05, 31))
        found = modes(list(samples))
        assert found is not None
        assert found.fast_s == pytest.approx(1.3, rel=0.1)


TIMES = some.lists(some.floats(1e-6, 1.0), min_size=1, max_size=40)


@given(TIMES)
def test_the_slow_mode_never_makes_the_default_slower(samples: Sequence[float]) -> None:
    assert fast_time_s(samples) <= np.median(samples) * (1 + 1e-12)
    beside = counted(samples, samples[::-1])
    assert len(beside) == len(samples)
    assert all(a <= b for a, b in zip(beside, samples, strict=True))


@given(TIMES)
def test_the_order_of_samples_does_not_matter(samples: list[float]) -> None:
    assert modes(samples) == modes(sorted(samples))


def test_a_speedup_is_that_over_the_fast_mode_with_all_pairs() -> None:
    default = [1.3, 2.5] * 10
    tuned = [0.65] * 20
    found = speedup(default, tuned)
    assert (found.median, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert ratio(default, tuned).high > 3.8


def test_a_default_of_one_mode_has_the_speedup_of_its_pairs() -> None:
    default, tuned = [1.3, 1.2, 1.25, 1.31, 1.3, 1.2, 1.24], [0.6, 0.7, 0.6, 0.6, 0.6, 0.65, 0.6]
    assert speedup(default, tuned) == ratio(default, tuned)


def test_a_slow_minute_of_the_machine_is_taken_off_neither_side() -> None:
    """As recorded of 2x64x56x56, pixels twice: both took 1.8 times as long in most rounds."""
    slow = [False, True, True] * 5
    default = [245.0 if s else 131.0 for s in slow]
    candidate = [225.0 if s else 120.0 for s in slow]
    found = speedup(default, candidate)
    assert found.is_faster
    assert found.median == pytest.approx(1.09, abs=0.01)


def test_a_candidate_that_is_slow_by_itself_is_no_faster_for_it() -> None:
    """A default that is always fast beside a candidate of two modes has the ratios of the pairs."""
    default = [1.0, 1.01, 0.99] * 5
    candidate = [0.9, 1.8, 1.8] * 5
    assert speedup(default, candidate) == ratio(default, candidate)
    assert speedup(default, candidate).median < 1


TWO_MODES = some.lists(
    some.tuples(some.sampled_from([1.0, 1.05, 2.0, 2.1]), some.floats(0.5, 3.0)),
    min_size=6,
    max_size=40,
)


@given(TWO_MODES)
def test_the_slow_mode_of_a_default_never_makes_a_pair_better_than_it_was(
    pairs: list[tuple[float, float]],
) -> None:
    default, candidate = zip(*pairs, strict=True)
    found, raw = speedup(default, candidate), ratio(default, candidate)
    assert found.low <= raw.low and found.median <= raw.median and found.high <= raw.high

"""Candidates that run against one another first, where few rounds with the default fit."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import mean

import numpy as np
import pytest

from hlotune.measure.timing.comparison import (
    CONFIDENCE,
    fewest_pairs,
    interval_rank,
    shared,
    speedup,
)
from hlotune.measure.timing.sifting import (
    LEFT_OUT,
    SPARE,
    USUAL_ROUNDS,
    Asked,
    How,
    Met,
    enough,
    met,
)
from hlotune.measure.timing.timing import FEW_S, SELDOM, Subject
from hlotune.search.finals.finals import FEWEST_PAIRS, PAIRS

HURRIED = Asked(pairs=FEWEST_PAIRS, limit_s=6.0, brief_s=0.25)


@dataclass
class Busy:
    """Another program, which comes and goes, and makes calls twice as long while it is there."""

    luck: np.random.Generator
    away_s: float
    """How long it is away in the mean."""
    here_s: float
    is_here: bool = False
    until_s: float = 0.0

    def took_s(self, now_s: float, work_s: float) -> float:
        """What a call takes that begins now, and would take so long alone; with some noise."""
        start_s, work_s = now_s, work_s * float(np.exp(self.luck.normal(0, 0.05)))
        while True:
            if now_s >= self.until_s:
                self.is_here = not self.is_here
                stays_s = self.luck.exponential(self.here_s if self.is_here else self.away_s)
                self.until_s = now_s + stays_s
            pace = 0.5 if self.is_here else 1.0
            done_s = pace * (self.until_s - now_s)
            if done_s >= work_s:
                return now_s + work_s / pace - start_s
            now_s, work_s = self.until_s, work_s - done_s


@dataclass
class Machine:
    """Calls that take what they take, by a clock that goes on by nothing else."""

    calls_s: Sequence[Callable[[], float]]
    busy: Busy | None = None
    beside_s: float = 0.0
    """What goes by with each call and is no part of it, as what puts caches into their state."""
    first_s: float = 0.0
    """What the first call of each takes longer."""
    now_s: float = 0.0
    made: list[int] = field(default_factory=list)

    def subjects(self) -> list[Subject]:
        return [Subject(lambda k=k: self._call(k), lambda: 0.0) for k in range(len(self.calls_s))]  # type: ignore[misc]

    def _call(self, k: int) -> float:
        seconds = self.calls_s[k]() + (0.0 if k in self.made else self.first_s)
        self.made.append(k)
        if self.busy is not None:
            seconds = self.busy.took_s(self.now_s, seconds)
        self.now_s += seconds + self.beside_s
        return seconds


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Met, Machine]]:
    """Makes the rounds of a default and candidates whose calls take so long."""

    def made(
        *calls_s: float | Callable[[], float],
        asked: Asked = HURRIED,
        staying: int | None = 0,
        busy: Busy | None = None,
        beside_s: float = 0.0,
        first_s: float = 0.0,
    ) -> tuple[Met, Machine]:
        calls = [s if callable(s) else (lambda s=s: s) for s in calls_s]
        machine = Machine(calls, busy, beside_s, first_s)
        monkeypatch.setattr(time, "perf_counter", lambda: machine.now_s)
        return met(machine.subjects(), asked, How(), staying), machine

    return made


def noisy(
    luck: np.random.Generator, time_s: float, noise: float, disturbed: float
) -> Callable[[], float]:
    """Calls with noise, of which a share is disturbed: it takes twice as long."""

    def call() -> float:
        slow = 2.0 if luck.random() < disturbed else 1.0
        return float(time_s * slow * np.exp(luck.normal(0, noise)))

    return call


def proven(found: Met) -> bool:
    """Whether any candidate is, each with its share of the error that is allowed."""
    default_s = found.samples_s[0]
    left = [s for k, s in enumerate(found.samples_s[1:]) if k not in found.behind]
    return any(speedup(default_s, s, shared(len(left))).is_faster for s in left)


Rounds = Callable[..., tuple[Met, Machine]]


def test_of_few_long_rounds_the_fastest_candidate_has_those_of_all(rounds: Rounds) -> None:
    found, _ = rounds(0.16, 0.16, 0.15, 0.17)
    assert found.behind == (0, 2)
    default_s, *candidates_s = found.samples_s
    assert default_s == (0.16,) * len(candidates_s[1])
    assert interval_rank(len(default_s), CONFIDENCE) > interval_rank(FEWEST_PAIRS, shared(3))
    assert set(candidates_s[0]) == {0.16} and set(candidates_s[2]) == {0.17}


def test_where_there_is_time_for_many_rounds_all_candidates_meet_the_default(
    rounds: Rounds,
) -> None:
    for times_s, asked in (
        ((0.02, 0.016, 0.015, 0.0195), Asked(PAIRS, 6.0, 0.25)),
        ((0.02, 0.016, 0.015, 0.0195), Asked(FEWEST_PAIRS, 6.0, 5.0)),
    ):
        found, _ = rounds(*times_s, asked=asked)
        assert not found.behind
        assert {len(s) for s in found.samples_s} == {len(found.samples_s[0])}
        assert len(found.samples_s[0]) >= enough(3)
    found, _ = rounds(0.2, 0.16, 0.15, 0.17, staying=None)
    assert not found.behind
    found, _ = rounds(0.2, 0.16)
    assert not found.behind


def test_enough_rounds_leave_out_two_at_either_end() -> None:
    for candidates in (2, 3):
        rank = [interval_rank(enough(candidates) - k, shared(candidates)) for k in (0, 1)]
        assert rank == [LEFT_OUT + 1, LEFT_OUT]


def test_who_stays_meets_the_default_with_the_fastest_of_the_others(rounds: Rounds) -> None:
    found, _ = rounds(0.2, 0.3, 0.16, 0.15, staying=1)
    assert found.behind == (1,)
    default_s, stays_s, _, fastest_s = found.samples_s
    assert len(default_s) == len(stays_s) == len(fastest_s)
    assert not rounds(0.2, 0.16, 0.15, staying=1)[0].behind


@pytest.mark.parametrize("pairs", [FEWEST_PAIRS, PAIRS])
@pytest.mark.parametrize("default", [0.7, 1.0, 1.4, 2.0, 0.99 * SELDOM, 6.0])
@pytest.mark.parametrize("call_s", [0.06, 0.1, 0.2, 0.3, 0.6, 2.0])
def test_no_more_time_goes_by_than_where_all_meet_the_default(
    call_s: float, default: float, pairs: int, rounds: Rounds
) -> None:
    asked = Asked(pairs, HURRIED.limit_s, HURRIED.brief_s)
    times_s = [call_s * s for s in (default, 1.0, 1.02, 1.01)]
    all_meet, of_all = rounds(*times_s, asked=asked, staying=None)
    found, of_few = rounds(*times_s, asked=asked)
    if found.behind:
        assert of_few.now_s <= SPARE * of_all.now_s + max(times_s)
    else:
        assert of_few.now_s <= of_all.now_s + sum(times_s)
    assert max(map(len, found.samples_s)) <= 3 * max(map(len, all_meet.samples_s))


@pytest.mark.parametrize("pairs", [FEWEST_PAIRS, PAIRS])
@pytest.mark.parametrize("limit_s", [HURRIED.limit_s, 0.0])
@pytest.mark.parametrize("brief_s", [HURRIED.brief_s, 0.0])
@pytest.mark.parametrize("call_s", [20e-6, 1e-3, 0.01, 0.05, 0.1, 0.3, 0.5])
@pytest.mark.parametrize(
    ("beside_s", "first_s"), [(1e-3, 0.0), (1e-3, 0.2), (0.1, 0.0), (2.0, 0.0)]
)
def test_what_goes_by_beside_calls_leaves_as_many_rounds_as_prove_something(
    beside_s: float,
    first_s: float,
    call_s: float,
    brief_s: float,
    limit_s: float,
    pairs: int,
    rounds: Rounds,
) -> None:
    asked = Asked(pairs, limit_s, brief_s)
    for times in ((1.5, 1.0, 1.2), (2.0, 1.0, 1.2, 1.5)):  # each round agrees with the one before
        calls_s = [call_s * s for s in times]
        found, _ = rounds(*calls_s, asked=asked, beside_s=beside_s, first_s=first_s)
        default_s, *candidates_s = found.samples_s
        with_default = [s for k, s in enumerate(candidates_s) if k not in found.behind]
        assert len(default_s) >= fewest_pairs(len(with_default))
        assert {len(s) for s in with_default} == {len(default_s)}


@pytest.mark.parametrize("first_s", [0.0, 0.2])
@pytest.mark.parametrize("pairs", [FEWEST_PAIRS, PAIRS])
def test_short_calls_that_do_not_agree_have_all_rounds_that_were_asked_for(
    pairs: int, first_s: float, rounds: Rounds
) -> None:
    asked = Asked(pairs, 6.0, 0.25)
    found, _ = rounds(*[1e-4] * 4, asked=asked, beside_s=1e-3, first_s=first_s)
    assert not found.behind
    assert len(found.samples_s[0]) >= pairs


@pytest.mark.parametrize(
    ("call_s", "limit_s", "before", "now"), [(0.1, 60.0, 0.6, 0.8), (0.4, 6.0, 0.7, 0.75)]
)
def test_a_candidate_is_proven_faster_though_rounds_are_disturbed(
    call_s: float, limit_s: float, before: float, now: float, rounds: Rounds
) -> None:
    """Another program takes half of the machine for three calls at a time, one call in three.

    There is time for nine rounds of all, or for the seven that prove anything."""
    asked, finals = Asked(FEWEST_PAIRS, limit_s, 0.25), 120
    won, spent_s = {0: 0, None: 0}, {0: 0.0, None: 0.0}
    for staying in won:
        for seed in range(finals):
            calls_s = [call_s * s for s in (1.35, 1.0, 1.03, 1.05)]
            busy = Busy(np.random.default_rng(seed), 5 * call_s, 3 * call_s)
            found, machine = rounds(*calls_s, asked=asked, staying=staying, busy=busy)
            won[staying] += proven(found)
            spent_s[staying] += machine.now_s
    assert won[None] / finals < before < now < won[0] / finals
    assert spent_s[0] < spent_s[None]


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("disturbed", [0.0, 0.15])
@pytest.mark.parametrize("limit_s", [60.0, 0.0])
def test_equal_candidates_are_seldom_proven_faster(
    noise: float, disturbed: float, limit_s: float, rounds: Rounds
) -> None:
    luck, asked = np.random.default_rng(4), Asked(FEWEST_PAIRS, limit_s, 0.0)
    won, finals = 0, 800
    for _ in range(finals):
        found, _ = rounds(*[noisy(luck, 0.1, noise, disturbed)] * 4, asked=asked)
        assert len(found.behind) == 2
        won += proven(found)
    assert won <= most_by_chance(finals)


def most_by_chance(finals: int) -> float:
    """The most of so many equal candidates that are called faster, with two deviations to spare."""
    expected = finals * (1 - CONFIDENCE) / 2
    return expected + 2 * sqrt(expected)


@pytest.mark.parametrize("limit_s", [60.0, 0.0])
@pytest.mark.parametrize(("away", "here"), [(10, 1), (5, 3), (2, 2)])
def test_a_machine_that_is_busy_at_times_makes_no_equal_candidate_faster(
    away: float, here: float, limit_s: float, rounds: Rounds
) -> None:
    asked, finals, won = Asked(FEWEST_PAIRS, limit_s, 0.0), 800, 0
    for seed in range(finals):
        busy = Busy(np.random.default_rng(seed), 0.1 * away, 0.1 * here)
        found, _ = rounds(*[0.1] * 4, asked=asked, busy=busy)
        won += proven(found)
    assert won <= most_by_chance(finals)


def test_the_candidate_that_is_chosen_is_hardly_slower_than_the_best(rounds: Rounds) -> None:
    luck, asked = np.random.default_rng(5), Asked(USUAL_ROUNDS, 60.0, 0.0)
    times_s = (1.5, 1.0, 1.05, 1.1)
    lost = []
    for _ in range(300):
        found, _ = rounds(*(noisy(luck, 0.1 * s, 0.05, 0.1) for s in times_s), asked=asked)
        (chosen,) = {0, 1, 2} - set(found.behind)
        lost.append(times_s[1 + chosen] - 1.0)
    assert mean(lost) < 0.025


def test_calls_that_are_long_are_not_made_for_nothing(rounds: Rounds) -> None:
    """A long call ahead of rounds is a sample of them, and is none of both kinds of rounds."""
    found, machine = rounds(*[2 * FEW_S] * 4)
    of_all = sum(map(len, found.samples_s))
    chosen = next(k for k in range(3) if k not in found.behind)
    of_chosen = machine.made.count(chosen + 1) - len(found.samples_s[chosen + 1])
    assert len(machine.made) == of_all + of_chosen
    assert of_chosen == len(found.samples_s[1 + found.behind[0]])

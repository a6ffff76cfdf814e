"""Champions of races by times that are not their luck."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from benchmarks.settled import (
    FINAL_ROUNDS,
    FINALISTS,
    WRONG,
    Settled,
    champions,
    chosen_s,
    crowds,
    curve,
    finalists,
    settled,
    shortlist,
)
from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Clock, Failure, Measurement, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Unroll
from tests.support.recorded import KERNEL

A, B, C, D = (Schedule("direct", (Unroll("y", f"i{k}"),)) for k in range(4))
WRONG_RESULT = Failure("wrong_result", "a lost tap")


def trial(schedule: Schedule, time_s: float | None) -> Trial:
    outcome = WRONG_RESULT if time_s is None else Measurement(samples_s=(time_s,))
    return Trial(Candidate(KERNEL, schedule), outcome)


@dataclass
class Device(CompilesNothing):
    """Builds nothing, and has samples of what it is asked for, in their order."""

    samples_s: Sequence[tuple[float, ...] | None]
    """The samples of the first rounds."""
    finals_s: Sequence[tuple[float, ...] | None] = ()
    """The samples of those that meet once more, in the order in which the first rounds put them."""
    heats_s: Sequence[float] = (1.0, 1.0, 1.0)
    """The times of trials on the way there; on the way back they take twice as long."""
    is_back: bool = False

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [Failure("build", "never built") for _ in candidates]

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        times_s = [2 * s for s in reversed(self.heats_s)] if self.is_back else self.heats_s
        self.is_back = not self.is_back
        pairs = zip(objects, times_s, strict=True)
        return [Trial(c, Measurement(samples_s=(s,))) for (c, _), s in pairs]

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        limit_s: float,
        clock: Clock,
    ) -> Comparison:
        assert clock == "kernel"
        samples_s = self.finals_s if pairs == FINAL_ROUNDS else self.samples_s
        found = (Measurement(samples_s=s) if s else WRONG_RESULT for s in samples_s)
        return Comparison(Measurement(samples_s=(1.0,)), tuple(found))


def test_of_few_trials_the_best_three_are_champions_and_failures_never() -> None:
    found = crowds([trial(A, 4.0), trial(B, None), trial(C, 2.0), trial(D, 3.0), trial(B, 1.0)])
    assert found == [(A,), (A,), (C, A), (C, D, A), (B, C, D)]


def test_of_more_trials_one_in_eight_meets_in_a_heat_as_in_a_run() -> None:
    schedules = [Schedule("direct", (Unroll("y", f"i{n}"),)) for n in range(200)]
    found = crowds([trial(s, 1.0 + n) for n, s in enumerate(schedules)])
    assert [len(found[n - 1]) for n in (2, 31, 32, 64, 128, 200)] == [2, 3, 4, 8, 16, 16]


def test_whoever_was_in_a_heat_once_is_timed_once() -> None:
    assert shortlist([[trial(A, 4.0), trial(C, 2.0)], [trial(B, None), trial(A, 3.0)]]) == [A, C]


def test_half_of_the_samples_choose_and_the_others_tell_the_time() -> None:
    """By all of its samples A would be the best; what chose it is left out of its time."""
    samples = (9.0, 9.0, 1.0, 1.0), (3.0, 3.0, 2.0, 2.0)
    device = Device([*samples, None], finals_s=samples, heats_s=(1.0, 2.0, 4.0))
    times = settled(KERNEL, [A, B, C], device, device)
    pace = (9 / 5 + 3 / 2.5) / 2
    assert times == {A: Settled(1.5, pace, 9 * pace), B: Settled(3.0, 2 * pace, 3 * pace), C: WRONG}
    assert chosen_s([A, B, C], times) == 9.0 * pace
    assert chosen_s([B, C], times) == 3.0 * pace


def test_those_that_the_first_rounds_choose_meet_once_more_at_the_pace_of_these() -> None:
    """The machine is twice as slow in the final: A, lucky before, is slower than B there."""
    first = (4.0, 4.0, 1.0, 1.0), (2.0, 2.0, 2.0, 2.0)
    device = Device(first, finals_s=((8.0,) * 4, (4.0,) * 4), heats_s=(1.0, 1.0))
    times = settled(KERNEL, [A, B], device, device)
    assert times == {A: Settled(1.5, 4.0, 4.0), B: Settled(1.5, 2.0, 2.0)}
    assert chosen_s([A, B], times) == 2.0


def test_what_fails_in_the_final_is_no_champion() -> None:
    device = Device([(1.0,) * 4, (2.0,) * 4], finals_s=(None, (2.0,) * 4), heats_s=(1.0, 1.0))
    times = settled(KERNEL, [A, B], device, device)
    assert times == {A: WRONG, B: Settled(1.5, 2.0, 2.0)}


def test_the_best_of_hundreds_are_finalists_and_one_alone_is_none() -> None:
    schedules = [Schedule("direct", (Unroll("y", f"i{n}"),)) for n in range(200)]
    objects = [(Candidate(KERNEL, s), Failure("build", "never built")) for s in schedules]
    times = {s: Settled(1.0, 200.0 - n, 1.0) for n, s in enumerate(schedules)}
    found = finalists(objects, times | {schedules[-1]: WRONG})
    assert [c.schedule for c, _ in found] == schedules[-2 : -FINALISTS - 2 : -1]
    assert finalists(objects[:1], times) == []


def test_a_heat_lets_three_through() -> None:
    heats_s = {A: 4.0, B: 1.0, C: 3.0, D: 2.0}
    times = {s: Settled(heat_s, 1.0, 1.0) for s, heat_s in heats_s.items()}
    assert champions([A, B, C, D], times) == [B, D, C]


def test_a_race_hands_over_the_best_of_its_champions() -> None:
    times = {
        A: Settled(3.0, 3.0, 3.1),
        B: Settled(1.0, 1.0, 1.1),
        C: Settled(2.0, 2.0, 2.2),
        D: WRONG,
    }
    trials = [trial(D, None), trial(A, 0.5), trial(C, 0.6), trial(B, 0.7)]
    assert curve(trials, times).tolist() == [inf, 3.1, 2.2, 1.1]
    assert np.isinf(curve([trial(D, 0.1)], times)).all()

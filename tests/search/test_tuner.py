"""The loop for one kernel."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hlotune.codegen.built import Built
from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import (
    CacheMode,
    Candidate,
    Failure,
    Measurement,
    Outcome,
    Trial,
)
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.search.budget.account import opened
from hlotune.search.experience import Experience
from hlotune.search.outcomes import HANGS
from hlotune.search.searchers.history import scores
from hlotune.search.tuner import LIMIT_S
from tests.support.toy import ToySpace
from tests.support.tuners import (
    KERNEL,
    FakeBuilder,
    FakeRunner,
    Log,
    factors,
    space,
    steps,
    tuner,
)


def test_each_step_records_one_batch_with_the_state_after_it() -> None:
    log = Log()
    tuning = tuner(log, space())
    first = tuning.step(32)
    assert first is not None
    assert (log.batch, len(log.trials)) == (1, 32)
    assert list(first.trials) == log.trials
    state = log.state
    steps(tuning, 1)
    assert (log.batch, len(log.trials)) == (2, 64)
    assert log.state != state


def test_each_trial_is_recorded_with_what_the_model_said_when_it_was_chosen() -> None:
    log = Log()
    tuning = tuner(log, space())
    steps(tuning, 1)
    second = tuning.step(32)
    assert second is not None and len(log.predicted) == 64
    times_s = np.array([t.time_s for t in second.trials], np.float64)
    said = np.array(log.predicted[32:], np.float32)
    assert spearman(scores(times_s), said) == second.rank_correlation > 0.2
    tuning.reject(second.trials[:1])
    assert log.predicted[64:] == [None]


def test_the_heuristic_is_measured_first() -> None:
    log, toy = Log(), space()
    steps(tuner(log, toy), 1)
    assert log.schedules[0] == toy.schedule(toy.heuristic())


def test_learning_beats_random_search() -> None:
    """Ten batches with the model against as many random trials, over five spaces."""
    wins = 0
    for seed in range(5):
        toy, log = ToySpace((10,) * 6, seed), Log()
        tuning = tuner(log, toy, seed=seed, model=Trees())
        steps(tuning, 10)
        random = toy.times_s(toy.sample(320, np.random.default_rng(seed))).min()
        wins += tuning.best_s < 0.8 * random
    assert wins == 5


def test_the_same_seed_gives_the_same_records() -> None:
    a, b = Log(), Log()
    for log in (a, b):
        steps(tuner(log, space(), seed=3, model=Trees()), 5)
    assert a.trials == b.trials
    assert opened(a.state)[0] == opened(b.state)[0]


def test_another_seed_gives_other_records() -> None:
    a, b = Log(), Log()
    steps(tuner(a, space(), seed=3), 1)
    steps(tuner(b, space(), seed=4), 1)
    assert a.trials != b.trials


def test_a_run_killed_in_a_batch_goes_on_as_if_it_had_not_been() -> None:
    whole = Log()
    steps(tuner(whole, space(), model=Trees()), 6)
    log = Log()
    with pytest.raises(KeyboardInterrupt):
        steps(
            tuner(log, space(), runner=FakeRunner(space(), dies_at=3 * 32 + 10), model=Trees()), 6
        )
    assert (log.batch, len(log.trials)) == (3, 96)
    again = tuner(log, space(), model=Trees())
    again.resume(log.batch, log.state)
    again.know(log.trials)
    again.experience.learn()
    steps(again, 3)
    assert log.trials == whole.trials


def test_what_is_known_is_not_measured_again() -> None:
    log, later = Log(), Log()
    steps(tuner(log, space()), 3)
    tuning = tuner(later, space(), seed=8)
    assert tuning.know(log.trials) == 96
    steps(tuning, 3)
    assert not set(later.schedules) & set(log.schedules)


def test_known_trials_may_be_champions() -> None:
    log = Log()
    first = tuner(log, space())
    steps(first, 4)
    second = tuner(Log(), space())
    second.know(log.trials)
    assert second.best_s == first.best_s
    assert second.champions(3) == first.champions(3)


def test_a_known_schedule_outside_the_space_is_champion_but_not_a_start() -> None:
    toy = space()
    tuning = tuner(Log(), toy)
    foreign = Schedule("direct", (Split("out", "i0", (99,) * 6),))
    tuning.know([Trial(Candidate(KERNEL, foreign), Measurement(samples_s=(1e-9,)))])
    assert tuning.best_s == 1e-9
    steps(tuning, 2)
    assert tuning.champions(1)[0].candidate.schedule == foreign


def test_the_default_compilers_time_is_not_a_trial_of_ours() -> None:
    tuning = tuner(Log(), space())
    default = Trial(Candidate(KERNEL, DEFAULT), Measurement(samples_s=(1e-9,)))
    assert tuning.know([default]) == 0
    assert tuning.best_s == float("inf")


def test_a_candidate_on_which_the_device_failed_may_be_tried_again() -> None:
    toy = ToySpace((2, 2))
    tuning = tuner(Log(), toy)
    candidate = Candidate(KERNEL, toy.schedule(toy.best))
    assert tuning.know([Trial(candidate, Failure("device", "impossible time"))]) == 0
    assert (step := tuning.step(8)) and len(step.trials) == 4
    again = tuner(Log(), toy)
    assert again.know([Trial(candidate, Failure("crash", "segmentation fault"))]) == 1
    assert (step := again.step(8)) and len(step.trials) == 3


def test_champions_are_distinct_and_fastest_first() -> None:
    log = Log()
    tuning = tuner(log, space())
    steps(tuning, 2)
    tuning.know(log.trials)  # every trial twice
    champions = tuning.champions(3)
    assert len({c.candidate.schedule for c in champions}) == 3
    times = sorted(t.time_s for t in log.trials if t.time_s)
    assert [c.time_s for c in champions] == times[:3]


def test_of_equal_times_the_shorter_schedule_is_champion() -> None:
    tuning = tuner(Log(), space())
    long = Schedule("direct", (Split("out", "i0", (2, 2)), Split("out", "i1", (2,))))
    short = Schedule("direct", (Split("out", "i0", (2, 2)),))
    same = Measurement(samples_s=(1.0,))
    tuning.know([Trial(Candidate(KERNEL, s), same) for s in (long, short)])
    assert tuning.champions(1)[0].candidate.schedule == short


def test_failures_are_recorded_and_counted() -> None:
    log = Log()
    tuning = tuner(log, ToySpace((4, 4, 2)), builder=FakeBuilder(unbuildable=2))
    step = tuning.step(16)
    assert step is not None
    failed = [t for t in log.trials if isinstance(t.outcome, Failure)]
    assert 0 < len(failed) == step.failures < 16


def test_the_search_leaves_what_fails() -> None:
    log = Log()
    tuning = tuner(
        log, space(), builder=FakeBuilder(unbuildable=space().best[-1] + 2), model=Trees()
    )
    shares = [step.failures / 32 for _ in range(8) if (step := tuning.step(32))]
    assert sum(shares[4:]) <= 0.4


def test_a_kernel_whose_candidates_all_fail_has_no_champion() -> None:
    tuning = tuner(Log(), ToySpace((4, 4, 1)), builder=FakeBuilder(unbuildable=1))
    steps(tuning, 2, n=8)
    assert tuning.best_s == float("inf")
    assert tuning.champions(3) == ()


def test_candidates_that_need_laxer_numerics_are_not_used() -> None:
    toy, strict, fast = space(), Log(), Log()
    runner = FakeRunner(toy, lax_from=1)
    assert (step := tuner(strict, toy, runner=runner).step(16)) and step.failures == 16
    fast_tuner = tuner(fast, toy, runner=runner, numerics="fast")
    assert (step := fast_tuner.step(16)) and step.failures == 0


def test_sums_in_an_order_that_loses_too_much_are_not_used() -> None:
    toy, log = space(), Log()
    tuning = tuner(log, toy, runner=FakeRunner(toy, plain="strict"), most_error=4.5e-6)
    steps(tuning, 4)
    assert {factors(t.candidate)[0] for t in log.trials} - {0, 1, 2, 3, 4}
    assert {factors(t.candidate)[0] for t in tuning.champions(999)} <= {0, 1, 2, 3, 4}


def test_an_algorithm_that_rounds_is_held_to_its_own_setting_alone() -> None:
    toy = space()
    step = tuner(Log(), toy, runner=FakeRunner(toy), most_error=0.0).step(16)
    assert step and step.failures == 0


def test_an_exhausted_space_ends_the_search() -> None:
    tuning = tuner(Log(), ToySpace((2, 2)))
    assert (step := tuning.step(32)) and len(step.trials) == 4
    assert tuning.step(32) is None


def test_a_candidate_has_limited_time_once_the_kernel_has_one() -> None:
    toy = space()
    runner = FakeRunner(toy)
    tuning = tuner(Log(), toy, runner=runner)
    steps(tuning, 2)
    assert runner.limits_s == [None] * 32 + [LIMIT_S] * 32


def test_a_batch_ends_after_a_few_timeouts_in_a_row() -> None:
    log, toy = Log(), space()
    runner = FakeRunner(toy)
    tuning = tuner(log, toy, runner=runner)
    steps(tuning, 1)
    runner.hangs = True
    step = tuning.step(32)
    assert step is not None
    assert len(step.trials) == step.failures == HANGS
    assert len(log.trials) == 32 + HANGS


def test_trials_that_devices_measured_at_the_same_time_are_all_kept() -> None:
    class Several(FakeRunner):
        @property
        def width(self) -> int:
            return 3

        def measure(
            self, kernel: Kernel, objects: Sequence[tuple[Candidate, Built | Failure]], **_: Any
        ) -> list[Trial]:
            time.sleep(0.03)
            return super().measure(kernel, objects)

    log, toy = Log(), space()
    tuning = tuner(log, toy, runner=Several(toy))
    step = tuning.step(32, limit_s=0.0)
    assert step is not None
    assert len(step.trials) == len(log.trials) == 3
    # A final takes as long of each, one after the other on one device.
    assert min(tuning.took.trials_s) >= 0.03


def test_what_the_device_failed_on_is_tried_once_more_and_not_learned_from() -> None:
    class Exhausted(FakeRunner):
        def _time(self, candidate: Candidate) -> Outcome:
            return Failure("device", "no memory")

    log, toy = Log(), ToySpace((2, 2))
    tuning = tuner(log, toy, runner=Exhausted(toy))
    counts = [len(step.trials) if (step := tuning.step(4)) else 0 for _ in range(3)]
    assert counts == [4, 4, 0]
    assert len(set(log.schedules)) == 4


def test_a_rejected_champion_is_recorded_and_never_champion_again() -> None:
    log, toy = Log(), space()
    tuning = tuner(log, toy)
    steps(tuning, 2)
    first, second = tuning.champions(2)
    tuning.reject([Trial(first.candidate, Failure("wrong_result", "a lost tap"))])
    assert tuning.champions(1) == (second,)
    assert tuning.best_s == second.time_s
    later = tuner(Log(), toy, seed=1)
    later.know(log.trials)
    assert later.champions(1) == (second,)
    assert later.best_s == second.time_s


def test_a_saved_state_of_another_space_is_left_alone() -> None:
    log, again = Log(), Log()
    steps(tuner(log, space()), 1)
    tuning = tuner(again, ToySpace((4, 4)))
    tuning.resume(log.batch, log.state)
    steps(tuning, 1, n=8)
    assert (again.batch, len(again.trials)) == (1, 8)


def test_the_end_of_a_search_tries_neighbours_of_the_best() -> None:
    log, toy = Log(), space()
    tuning = tuner(log, toy)
    steps(tuning, 3)
    best = toy.locate(tuning.champions(1)[0].candidate.schedule)
    step = tuning.step(16, finishing=True)
    assert best is not None
    assert step is not None
    located = [toy.locate(t.candidate.schedule) for t in step.trials]
    moved = [np.count_nonzero(c != best) for c in located if c is not None]
    assert sum(m <= 1 for m in moved) >= 8


def test_a_runner_that_mixes_up_its_trials_is_found_out() -> None:
    class Mixed(FakeRunner):
        last: Sequence[Trial] = ()

        def measure(
            self,
            kernel: Kernel,
            objects: Sequence[tuple[Candidate, Built | Failure]],
            *,
            cache: CacheMode = "model",
            limit_s: float | None = None,
        ) -> list[Trial]:
            self.last, before = super().measure(kernel, objects), self.last
            return before or self.last

    with pytest.raises(RuntimeError, match="expected a trial of each candidate in order"):
        tuner(Log(), space(), runner=Mixed(space())).step(8)


def test_scores_are_relative_to_each_kernels_best() -> None:
    class Spy(Trees):
        def fit(self, inputs, scores, groups):  # type: ignore[no-untyped-def]
            self.scores, self.groups = scores, groups

    model = Spy()
    experience = Experience(model)
    experience.add(0, np.zeros((2, 3), np.float32), np.array([1.0, 2.0]))
    experience.add(1, np.zeros((2, 3), np.float32), np.array([np.nan, 50.0]))
    experience.add(0, np.zeros((1, 3), np.float32), np.array([0.5]))
    experience.learn()
    np.testing.assert_allclose(model.scores, [0.5, 0.25, 0, 1, 1])
    np.testing.assert_array_equal(model.groups, [0, 0, 1, 1, 0])

"""Seconds that are put by for closing a run: measured, kept, and said where they were too few."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from hlotune.codegen.built import Built
from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Failure, Trial
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.reserve import OUTSIDE_S, Reserve
from hlotune.search.finals.decide import HURRY_S, STILL_AT_WORK, TOO_LONG
from hlotune.search.finals.finals import FEWEST_PAIRS, PAIRS
from hlotune.search.progress import Batch, Event, Finalising, Finished, FormTried, KernelSkipped
from hlotune.search.tuner import Took
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.costly_device import SLOW, Device, contest, several
from tests.support.sessions import FakeProgram, run, task


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.mark.parametrize("slower", [0.6, 1.0, 1.3])
@pytest.mark.parametrize(("kernels", "budget_s"), [(3, 60.0), (5, 60.0), (8, 90.0), (18, 240.0)])
def test_a_budget_is_kept_and_used_with_all_that_closes_a_run(
    kernels: int, budget_s: float, slower: float, database: Database
) -> None:
    tasks, events = several(kernels), list[Event]()
    device = Device(tasks, SLOW, slower=slower)
    whole = FakeProgram(device=device, preparing_s=6.0, comparing_s=3.0, timing_s=2.0)
    limits = Limits(seconds=budget_s)
    result = run(database, tasks, device, model=Trees(), limits=limits, whole=whole, events=events)
    tried = any(isinstance(event, FormTried) for event in events)
    with_faster_s = whole.due_s(0.0) if tried else 0.0  # no form was faster
    assert 0.93 * budget_s < device.now() + with_faster_s
    assert device.now() <= budget_s
    assert not result.overrun
    assert len(device.pairs) == kernels
    assert max(device.pairs) <= PAIRS
    assert slower > 1 or min(device.pairs) > FEWEST_PAIRS
    assert whole.oracle_limits_s == [0.2 * budget_s]


def test_what_finals_turn_out_not_to_need_is_searched_by_those_that_wait(
    database: Database,
) -> None:
    class Telling(Device):
        """Says in which order trials and finals came, a word each."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            told.append(("trial", kernel))
            return super().measure(kernel, *arguments, **named)

        def compare(self, kernel: Kernel, *arguments: Any, **named: Any) -> Comparison:
            told.append(("final", kernel))
            return super().compare(kernel, *arguments, **named)

    told = list[tuple[str, Kernel]]()
    tasks, events = (*several(7), task("conv7", 7, weight=20.0)), list[Event]()
    device = Telling(tasks, SLOW, slower=0.6)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=90.0), events=events)
    begun = next(n for n, event in enumerate(events) if isinstance(event, Finalising))
    batches = [e for e in events[begun:] if isinstance(e, Batch)]
    assert batches
    assert batches[-1].trials == result.trials
    finals = [kernel for word, kernel in told if word == "final"]
    assert finals[0] == tasks[-1].kernel
    for kernel in finals:
        assert ("trial", kernel) not in told[told.index(("final", kernel)) :]


def test_ctrl_c_while_what_was_left_is_searched_ends_the_run_with_short_finals_within_seconds(
    database: Database,
) -> None:
    class Stopped(Device):
        begun = 0
        """Finals that had begun when Ctrl-C came."""
        met_s = 0.0
        """The time at which it did."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            if self.pairs and not self.begun:
                self.begun, self.met_s = len(self.pairs), self.elapsed_s
                raise KeyboardInterrupt
            return super().measure(kernel, *arguments, **named)

    tasks = several(8)
    device = Stopped(tasks, SLOW, slower=0.6)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=90.0))
    assert result.interrupted
    assert result.speedup is None
    assert len(result.won) == len(device.pairs)
    assert 0 < device.begun < len(device.pairs)
    assert set(device.pairs[device.begun :]) == {FEWEST_PAIRS}
    each_s = (device.elapsed_s - device.met_s) / (len(device.pairs) - device.begun)
    in_time = device.begun + int(HURRY_S / each_s)
    assert len(device.pairs) == pytest.approx(in_time, abs=1)
    assert device.elapsed_s - device.met_s <= HURRY_S
    assert len(device.pairs) < len(tasks)


class Interrupted(Device):
    """Ctrl-C meets a trial at second 50."""

    begun = 0
    """Finals that had begun by then."""

    def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
        if self.elapsed_s >= 50.0:
            self.begun = len(self.pairs)
            raise KeyboardInterrupt
        return super().measure(kernel, *arguments, **named)


def interrupted(
    database: Database, device: Interrupted, events: list[Event]
) -> tuple[list[str], set[str]]:
    """The kernels that are told to stay undecided for a reason, with it, and those that do."""
    limits = Limits(seconds=200.0)
    result = run(database, device.tasks, device, model=Trees(), limits=limits, events=events)
    assert result.interrupted
    told = [f"{e.label}: {e.reason}" for e in events if isinstance(e, KernelSkipped)]
    return told, {k.label for k in result.kernels if k.trials and not k.won}


def test_ctrl_c_announces_the_finals_that_there_is_time_for_and_tells_of_the_others(
    database: Database,
) -> None:
    device, events = Interrupted(several(8), SLOW, oracle_s=2.0), list[Event]()
    told, undecided = interrupted(database, device, events)
    assert undecided
    assert sorted(told) == sorted(f"{label}: {TOO_LONG}" for label in undecided)
    (announced,) = (e.kernels for e in events if isinstance(e, Finalising))
    finals = len(device.pairs) - device.begun
    assert 0 < finals < len(device.tasks)
    assert announced == pytest.approx(finals, abs=1)


def test_a_kernel_whose_final_takes_longer_than_anyone_waits_after_ctrl_c_is_told(
    database: Database,
) -> None:
    device, events = Interrupted(several(2), SLOW, oracle_s=9.0), list[Event]()
    told, undecided = interrupted(database, device, events)
    assert undecided and len(device.pairs) == device.begun
    assert sorted(told) == sorted(f"{label}: {TOO_LONG}" for label in undecided)
    assert [e.kernels for e in events if isinstance(e, Finalising)] == [0]


def test_nothing_is_timed_beside_what_ctrl_c_has_given_up(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_s = list[float]()
    decide = "hlotune.search.finals.decide"
    monkeypatch.setattr(f"{decide}.over_within", lambda s: waited_s.append(s))
    monkeypatch.setattr(f"{decide}.is_anything_left", lambda: True)
    device = Interrupted(several(2), SLOW)
    told, undecided = interrupted(database, device, [])
    assert waited_s == [HURRY_S]
    assert undecided and len(device.pairs) == device.begun
    assert sorted(told) == sorted(f"{label}: {STILL_AT_WORK}" for label in undecided)


def test_finals_that_take_longer_than_expected_have_fewer_pairs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.search.budget.reserve.CLEARLY", inf)  # none ends early
    tasks = several(8)
    device = Device(tasks, SLOW, slower=1.4, agree=PAIRS)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=120.0))
    assert device.now() <= 1.05 * 120.0
    assert not result.overrun
    assert device.pairs[0] > device.pairs[-1] >= FEWEST_PAIRS


def test_a_kernel_without_a_batch_is_expected_to_take_the_same_before_and_after_its_final() -> None:
    had = Took(build_s=0.05, trials_s=[0.1, 0.1 / 3, 0.1 / 3])
    timed_s = 1.6  # so that 20 rounds are longer than those that go on
    contests = [replace(contest(n, Took() if n < 3 else had), timing_s=timed_s) for n in range(10)]
    final_s = 0.35 + timed_s + 20 * 4 * timed_s / 80  # of each, with 20 pairs
    reserve = Reserve(contests, 10 * final_s + OUTSIDE_S + 0.01, FakeProgram())
    assert reserve.pairs(contests, 0.0, hurried=False) == 20
    reserve.learn(contests[0], 20, final_s)
    assert reserve.pairs(contests[1:], final_s, hurried=False) == 20
    reserve.learn(contests[1], 20, 1.5 * final_s)
    assert reserve.pairs(contests[2:], 2.5 * final_s, hurried=False) < 20


def test_a_final_of_a_program_of_long_calls_may_end_a_little_late_and_does_not_begin_late() -> None:
    had = Took(build_s=0.05, trials_s=[0.1, 0.1 / 3, 0.1 / 3])
    contests = [contest(0, had)]
    reserve = Reserve(contests, 100.0, FakeProgram(is_long=True))
    for passed_s, pairs in ((50.0, PAIRS), (99.5, FEWEST_PAIRS), (100.0, 0), (101.0, 0)):
        assert reserve.pairs(contests, passed_s, hurried=False) == pairs


def test_a_first_batch_of_slow_trials_leaves_the_others_theirs(database: Database) -> None:
    class Lagging(Device):
        """Trials of one kernel take three seconds."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            self.elapsed_s += 3.0 if kernel == tasks[0].kernel else 0.0
            return super().measure(kernel, *arguments, **named)

    tasks = several(3)
    device = Lagging(tasks, {"conv0": 2.0, "conv1": 1.0, "conv2": 1.0})
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=60.0))
    assert min(k.trials for k in result.kernels) >= 1
    assert len(device.pairs) >= 3


def test_a_run_that_misses_its_budget_says_by_how_much_and_where(database: Database) -> None:
    tasks, events = several(8), list[Event]()
    device = Device(tasks, SLOW, slower=4.0)
    result = run(
        database, tasks, device, model=Trees(), limits=Limits(seconds=120.0), events=events
    )
    assert len(device.pairs) == 8  # nothing is left out
    over_s = device.now() - 120.0
    assert over_s > 6.0
    assert result.overrun.startswith(
        f"{over_s:.1f} s over the budget of 120 s: comparing champions"
    )
    assert [e.overrun for e in events if isinstance(e, Finished)] == [result.overrun]
    assert result.overrun in render(report(database, result.run), color=False).replace("\n", " ")


def test_where_trials_are_limited_nothing_is_prepared_and_nothing_is_over(
    database: Database,
) -> None:
    tasks = several(2)
    whole = FakeProgram()
    result = run(
        database, tasks, Device(tasks, SLOW), model=Trees(), limits=Limits(trials=16), whole=whole
    )
    assert (whole.oracle_limits_s, result.overrun) == ([], "")


def test_a_batch_ends_where_only_the_time_for_closing_is_left(database: Database) -> None:
    """Trials become twenty times as long at second 40."""

    class Slowing(Device):
        def measure(
            self,
            kernel: Kernel,
            objects: Sequence[tuple[Candidate, Built | Failure]],
            *,
            cache: CacheMode = "model",
            limit_s: float | None = None,
        ) -> list[Trial]:
            self.elapsed_s += 1.0 if self.elapsed_s > 40.0 else 0.0
            return super().measure(kernel, objects, cache=cache, limit_s=limit_s)

    tasks = several(3)
    device = Slowing(tasks, SLOW)
    run(database, tasks, device, model=Trees(), limits=Limits(seconds=60.0))
    assert device.now() <= 1.05 * 60.0

"""How a run ends where champions fail, programs are wrong, or time is short."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Failure, Measurement, Trial
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.decide import WRONG_NOW
from hlotune.search.finals.finals import ROUNDS
from hlotune.search.finals.heats import CHAMPIONS
from hlotune.search.finals.missed_budget import missed_by
from hlotune.search.progress import Batch, Event, Finalising, Finished, KernelSkipped
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Paired, Whole
from tests.support.sessions import (
    UNDER,
    WHOLE,
    FakeDevice,
    FakeProgram,
    Lucky,
    Objects,
    run,
    task,
    two,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.fixture
def every_trial_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """No champion is left out for being far behind the best."""
    monkeypatch.setattr("hlotune.search.finals.heats.BEHIND", inf)


@pytest.mark.usefixtures("every_trial_near")
def test_a_champion_that_proves_wrong_is_a_recorded_failure(database: Database) -> None:
    conv = (task("conv", 1),)
    run(database, conv, FakeDevice(conv, wrong=True))
    wrong = [t for t in database.trials(conv[0].kernel.key, **UNDER) if t.time_s is None]
    assert len(wrong) == ROUNDS * CHAMPIONS
    assert {t.outcome.kind for t in wrong if isinstance(t.outcome, Failure)} == {"wrong_result"}
    (kernel,) = run(database, conv, limits=Limits(trials=1), seed=1).kernels
    assert kernel.schedule not in {t.candidate.schedule for t in wrong}


@pytest.mark.usefixtures("every_trial_near")
def test_with_too_few_pairs_to_test_several_the_best_is_proved_alone(database: Database) -> None:
    class Slow(FakeDevice):
        met: ClassVar[list[int]] = []

        def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
            self.met.append(len(objects))
            return super().final(kernel, objects, 6)

    conv = (task("conv", 1),)
    result = run(database, conv, Slow(conv))
    assert Slow.met == [CHAMPIONS, 1]
    assert result.kernels[0].won


def test_a_default_that_fails_in_its_final_leaves_that_kernel_alone(database: Database) -> None:
    class Failing(FakeDevice):
        def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
            self.default_s["dense"] = -1.0
            return super().final(kernel, objects, pairs)

    tasks, events = two(), list[Event]()
    result = run(database, tasks, Failing(tasks), events=events)
    assert [k.won for k in result.kernels] == [True, False]
    assert any(isinstance(e, KernelSkipped) and e.label == "dense" for e in events)


class WrongTogether:
    """Compares a whole program that is wrong as long as the kernels named are replaced."""

    def __init__(self, database: Database, *wrong: Task) -> None:
        self.database, self.wrong, self.calls = database, list(wrong), 0

    def __call__(self) -> Whole | None:
        self.calls += 1
        for blamed in self.wrong:
            key = blamed.kernel.key
            if decision(self.database, key, **UNDER).schedule.algorithm != XLA:
                raise WrongResult("expected 1, got 2", (key,), (f"{blamed.label}0 (by hand)",))
        return WHOLE


def test_kernels_that_are_wrong_in_the_program_are_taken_back(database: Database) -> None:
    conv, dense = tasks = two()
    whole = WrongTogether(database, conv)
    result = run(database, tasks, compare_whole=whole)
    assert whole.calls == 2
    assert [k.won for k in result.kernels] == [False, True]
    assert result.wrong == (conv.kernel.key,)
    assert result.wrong_sites == ("conv0 (by hand)",)
    assert result.speedup == 2.0
    taken = decision(database, conv.kernel.key, **UNDER)
    assert (taken.schedule.algorithm, taken.reason) == (XLA, "kept default: wrong in the program")
    assert decision(database, dense.kernel.key, **UNDER).schedule.algorithm != XLA
    assert "wrong in the program" in result.report()


def test_a_champion_that_was_wrong_in_the_program_is_never_champion_again(
    database: Database,
) -> None:
    conv = (task("conv", 1),)
    first = run(database, conv, compare_whole=WrongTogether(database, *conv))
    assert first.speedup == 2.0  # of a program that is the default
    second = run(database, conv, limits=Limits(trials=1), seed=1)
    assert second.kernels[0].schedule != first.kernels[0].schedule
    assert decision(database, conv[0].kernel.key, **UNDER).schedule == second.kernels[0].schedule


def test_a_program_is_compared_until_it_is_right(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, compare_whole=WrongTogether(database, *tasks))
    assert set(result.wrong) == {t.kernel.key for t in tasks}
    assert set(result.wrong_sites) == {"conv0 (by hand)", "dense0 (by hand)"}
    assert not result.won


def test_a_batch_that_comes_behind_the_finals_of_known_champions_is_a_batch(
    database: Database,
) -> None:
    tasks, events = two(), list[Event]()
    run(database, tasks, limits=Limits(trials=16))
    result = run(database, tasks, limits=Limits(seconds=3.5), events=events)
    kinds = [type(e) for e in events]
    assert kinds.index(Finalising) < kinds.index(Batch)
    assert (result.trials > 0, result.needed_s) == (True, None)
    assert "No batch of trials" not in result.report()


def test_a_wrong_program_that_no_kernel_is_to_blame_for_ends_its_run_all_the_same(
    database: Database,
) -> None:
    def wrong() -> Whole | None:
        raise WrongResult("expected 1, got 2; to blame: no site")

    events: list[Event] = []
    result = run(database, two(), events=events, compare_whole=wrong)
    assert result.wrong_anyway == "expected 1, got 2; to blame: no site"
    assert (result.wrong, result.speedup) == ((), None)
    assert isinstance(events[-1], Finished)
    (row,) = database.query("select finished from runs where id = :run", {"run": result.run})
    assert row["finished"] is not None
    assert "conv" in result.report()


def test_a_budget_without_room_for_a_batch_says_which_has_it(database: Database) -> None:
    tasks, events = two(), list[Event]()
    result = run(database, tasks, limits=Limits(seconds=0.1), events=events)
    assert result.trials == 0
    assert result.needed_s is not None
    assert result.needed_s > 0.1
    assert f"No batch of trials fitted into the budget; give one of {result.needed_s} s." in (
        result.report()
    )
    assert result.skipped == (("conv", "the budget has no time for it"),)
    enough = run(database, tasks, limits=Limits(trials=1))
    assert enough.needed_s is None
    assert "No batch" not in enough.report()


def test_the_first_batch_comes_before_other_defaults_and_before_the_whole_program(
    database: Database,
) -> None:
    told = list[str]()

    class Telling(FakeDevice):
        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            told.append(f"trial of {self._task(kernel).label}")
            return super().measure(kernel, *arguments, **named)

        def default(self, kernel: Kernel) -> Measurement:
            told.append(f"default of {self._task(kernel).label}")
            return super().default(kernel)

    class Whole(FakeProgram):
        def prepare(self, oracle_limit_s: float) -> None:
            told.append("program")
            super().prepare(oracle_limit_s)

    tasks = two()
    run(database, tasks, Telling(tasks), limits=Limits(seconds=12.0), whole=Whole())
    assert list(dict.fromkeys(told)) == [
        "default of dense", "trial of dense", "program", "default of conv", "trial of conv",
    ]  # fmt: skip


def test_a_program_is_not_prepared_where_the_budget_has_passed(database: Database) -> None:
    tasks = two()
    known = run(database, tasks)  # champions to compare, without a batch
    assert known.won
    device = FakeDevice(tasks, elapsed_s=0.0)
    whole = Late(device=device, comparing_s=2.0)
    result = run(database, tasks, device, limits=Limits(seconds=0.01), whole=whole, seed=1)
    assert whole.called == ["compare", "prepare"]
    assert whole.oracle_limits_s == [0.2 * 0.01]
    assert "preparing took 0.1 s, and there was no batch; comparing champions" in result.overrun


@dataclass
class Late(FakeProgram):
    """Knows what it was asked for, and when."""

    called: list[str] = field(default_factory=list)

    def prepare(self, oracle_limit_s: float) -> None:
        self.called.append("prepare")
        super().prepare(oracle_limit_s)

    def compare(self, *limits_s: Any, **named: Any) -> Whole | None:
        self.called.append("compare")
        return super().compare(*limits_s, **named)


def test_a_missed_budget_is_told_with_what_took_the_time() -> None:
    assert missed_by(None, 99.0, 9.0, searched=True) == ""
    assert missed_by(20.0, 21.0, 9.0, searched=True) == ""
    over = "4.0 s over the budget of 20 s: "
    assert missed_by(20.0, 24.0, 23.99, searched=False) == (
        f"{over}preparing took 24.0 s, and there was no batch"
    )
    assert missed_by(20.0, 24.0, 21.0, searched=False) == (
        f"{over}preparing took 21.0 s, and there was no batch; comparing champions and the program "
        "with the default took 3.0 s"
    )


def test_kernels_with_which_the_whole_program_is_slower_are_left_to_the_default(
    database: Database,
) -> None:
    tasks = two()
    slower = Paired(default_s=(0.84,), tuned_s=(1.0,), speedup=0.84, low=0.73, high=0.94)
    result = run(database, tasks, compare_whole=lambda: replace(WHOLE, paired=slower))
    assert not result.won and not result.wrong and result.speedup == 0.84
    for t in tasks:
        found = decision(database, t.kernel.key, numerics="standard", **UNDER)
        assert found.schedule.algorithm == XLA
        assert found.reason == "kept default: slower in the program"


class FasterWithout:
    """Compares a whole program that is proven faster without the kernels named."""

    def __init__(self, database: Database, *slow: Task) -> None:
        self.database, self.slow, self.calls = database, slow, 0

    def __call__(self) -> Whole | None:
        self.calls += 1
        keys = (t.kernel.key for t in self.slow)
        found = {k: decision(self.database, k, **UNDER).schedule for k in keys}
        return replace(WHOLE, slower=tuple(k for k, s in found.items() if s.algorithm != XLA))


def test_a_kernel_without_which_the_program_is_faster_goes_back_and_winners_stay(
    database: Database,
) -> None:
    conv, dense = tasks = two()
    whole = FasterWithout(database, conv)
    result = run(database, tasks, compare_whole=whole)
    assert whole.calls == 2
    assert [k.won for k in result.kernels] == [False, True]
    assert (result.wrong, result.speedup) == ((), 2.0)
    taken = decision(database, conv.kernel.key, **UNDER)
    assert (taken.schedule.algorithm, taken.reason) == (XLA, "kept default: slower in the program")
    assert decision(database, dense.kernel.key, **UNDER).schedule.algorithm != XLA


def test_ctrl_c_while_the_rest_is_compared_again_leaves_no_figure_of_before(
    database: Database,
) -> None:
    conv, _ = tasks = two()
    whole = FasterWithout(database, conv)

    def stopped() -> Whole | None:
        if whole.calls:
            raise KeyboardInterrupt
        return whole()

    result = run(database, tasks, compare_whole=stopped)
    assert result.interrupted and result.speedup is None
    assert [k.won for k in result.kernels] == [False, True]


def test_what_stands_is_replaced_only_by_who_is_proven_faster_beside_it(
    database: Database,
) -> None:
    conv = (task("conv", 1),)
    (first,) = run(database, conv).kernels
    lucky = Lucky(conv)
    (second,) = run(database, conv, lucky, limits=Limits(trials=16), seed=5).kernels
    assert first.best_s is not None and second.best_s is not None
    assert second.best_s <= first.best_s


def test_what_stands_and_fails_now_gives_way(database: Database) -> None:
    conv = (task("conv", 1),)
    (first,) = run(database, conv).kernels
    failing = FakeDevice(conv, failing=frozenset({first.schedule}))
    (second,) = run(database, conv, failing, limits=Limits(trials=1), seed=5).kernels
    assert second.won and second.schedule != first.schedule


def test_what_stands_and_is_wrong_now_is_used_no_more_though_no_other_takes_its_place(
    database: Database,
) -> None:
    conv = (task("conv", 1),)
    (first,) = run(database, conv).kernels
    assert decision(database, first.key, **UNDER).schedule == first.schedule
    run(database, conv, FakeDevice(conv, wrong=True), limits=Limits(trials=1), seed=5)
    found = decision(database, first.key, **UNDER)
    assert found.schedule.algorithm == XLA
    assert found.reason == f"kept default: {WRONG_NOW}"

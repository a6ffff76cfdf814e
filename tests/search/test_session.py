"""A whole run over several kernels: budget, finals, result; all without hardware."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from math import inf
from operator import itemgetter
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.deploy.other_jaxlib import won_times
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.promises import YOUNG
from hlotune.search.progress import (
    Batch,
    Event,
    Finalising,
    Finished,
    KernelSkipped,
    KernelStarted,
    Started,
)
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.tasks import Skipped
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Paired
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.sessions import TOOLS, UNDER, WHOLE, FakeDevice, run, two


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def test_kernels_that_beat_their_defaults_win(database: Database) -> None:
    result = run(database, two())
    assert [k.won for k in result.kernels] == [True, True]
    for kernel in result.kernels:
        assert kernel.ratio > 1
        assert kernel.best_s is not None
        assert kernel.ratio == pytest.approx(kernel.default_s / kernel.best_s)
        assert kernel.trials == 96


def test_a_default_that_is_not_beaten_is_kept_and_is_no_win(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, {"conv": 0.5e-3}))
    conv, dense = result.kernels
    assert (conv.won, dense.won) == (False, True)
    assert conv.ratio < 1
    assert conv.tuned_s == conv.default_s
    assert dense.tuned_s < dense.default_s


def test_the_database_decides_as_the_result_says(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, {"conv": 0.5e-3}))
    conv, dense = (decision(database, k.key, **UNDER) for k in result.kernels)
    assert conv.schedule.algorithm == XLA
    assert dense.schedule == result.kernels[1].schedule


def test_a_default_that_is_wrong_is_said_to_be_and_one_that_is_right_but_slower_wins(
    database: Database,
) -> None:
    tasks, events = two(), list[Event]()
    result = run(
        database,
        tasks,
        FakeDevice(tasks, {"conv": 0.5e-3}),
        events=events,
        default_errors={"conv": 37.0, "dense": 0.5},
        wrong_default="XLA's own result 0 is wrong",
    )
    conv, dense = result.kernels
    assert (conv.won, dense.won) == (True, True)
    assert conv.ratio < 1
    told = {e.label: e.default_error for e in events if isinstance(e, KernelStarted)}
    assert told == {"conv": 37.0, "dense": 0.5}
    found = report(database, result.run)
    assert {k.label: k.default_error for k in found.kernels} == told
    said = render(found, color=False)
    wrong = "XLA's own result does not agree with the reference: it is off by 37 times its bound"
    assert f"conv ({conv.key[:8]}): {wrong}\n" in said
    assert said.count("does not agree") == 1
    assert "XLA's own result 0 is wrong\n" in said


@pytest.mark.parametrize(("times", "won"), [(15.0, ["conv", "dense"]), (17.0, ["dense"])])
def test_what_is_off_by_over_sixteen_times_the_defaults_error_is_no_champion(
    database: Database, times: float, won: list[str]
) -> None:
    tasks, of_default = two(), 0.01
    result = run(
        database,
        tasks,
        FakeDevice(tasks, {"dense": 20e-3}, off_by=times * of_default),
        default_errors={"conv": 0.5},
    )
    assert [k.label for k in result.won] == won


def test_what_replaces_a_wrong_default_is_not_taken_back_for_being_slow(database: Database) -> None:
    tasks = two()
    slower = Paired(default_s=(0.84,), tuned_s=(1.0,), speedup=0.84, low=0.73, high=0.94)
    result = run(
        database,
        tasks,
        FakeDevice(tasks, {"conv": 0.5e-3}),
        compare_whole=lambda: replace(WHOLE, paired=slower),
        default_errors={"conv": 37.0},
    )
    assert [k.label for k in result.won] == ["conv"]
    decided = decision(database, result.kernels[0].key, **UNDER)
    assert decided.schedule.algorithm != XLA
    assert won_times({"conv": decided})["conv"][0] == inf


def test_a_champion_that_proves_wrong_does_not_win(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, wrong=True))
    assert not result.won
    assert result.speedup is None


def test_the_whole_program_is_compared_where_something_won(database: Database) -> None:
    result = run(database, two())
    assert (result.speedup, result.speedup_low, result.speedup_high) == (2.0, 1.9, 2.1)


@pytest.mark.parametrize("searcher", ["grid", "random"])
def test_who_learns_nothing_measures_what_it_draws_to_the_end(
    database: Database, searcher: str
) -> None:
    conv, dense = two()
    run(database, [dense])  # whose best others borrow
    run(database, [conv], searcher=searcher)
    measured = database.query(
        "select schedule, batch from trials where kernel = :key and batch > 0 order by number",
        {"key": conv.kernel.key},
    )
    entropy = (0, int(conv.kernel.key, 16))
    alone = SEARCHERS[searcher](conv.space, Trees(), entropy, conv.space.firsts())
    for _, batch in groupby(measured, itemgetter("batch")):
        schedules = [Schedule.from_json(row["schedule"]) for row in batch]
        configs = alone.propose(len(schedules))
        alone.observe(configs, np.ones(len(configs)))
        assert schedules == list(map(conv.space.schedule, configs))
    assert len(measured) == 96


def test_every_trial_is_recorded_and_the_default_is_one_of_them(database: Database) -> None:
    conv, _ = tasks = two()
    result = run(database, tasks)
    recorded = database.trials(conv.kernel.key, **UNDER)
    assert len(recorded) == 97
    assert recorded[0].candidate.schedule.algorithm == XLA
    assert result.trials == 192


def test_a_second_run_measures_nothing_again(database: Database) -> None:
    conv, _ = tasks = two()
    first, second = run(database, tasks), run(database, tasks, seed=1)
    assert (first.known_trials, second.known_trials) == (0, 192)
    schedules = [t.candidate.schedule for t in database.trials(conv.kernel.key, **UNDER)]
    ours = [s for s in schedules if s.algorithm != XLA]
    assert len(ours) == len(set(ours)) == 192


def test_a_second_run_keeps_the_champion_of_the_first(database: Database) -> None:
    tasks = two()
    first = run(database, tasks, limits=Limits(trials=192))
    second = run(database, tasks, limits=Limits(trials=1), seed=1)
    for before, after in zip(first.kernels, second.kernels, strict=True):
        assert after.ratio >= before.ratio


@pytest.mark.parametrize(
    ("limits", "settled"), [(Limits(seconds=100_000.0), True), (Limits(trials=64), False)]
)
def test_a_search_that_ends_before_its_budget_says_so(
    database: Database, limits: Limits, settled: bool
) -> None:
    events = list[Event]()
    run(database, two(), limits=limits, events=events)
    assert Finalising(kernels=2, interrupted=False, settled=settled) in events


def test_a_kernel_that_the_default_compiler_refuses_is_skipped(database: Database) -> None:
    tasks, events = two(), list[Event]()
    result = run(database, tasks, FakeDevice(tasks, {"conv": -1.0}), events=events)
    assert [k.label for k in result.kernels] == ["dense"]
    assert result.skipped[0][0] == "conv"
    assert any(isinstance(e, KernelSkipped) and e.label == "conv" for e in events)


def test_a_program_without_kernels_gives_an_empty_result(database: Database) -> None:
    result = run(database, (), skipped=(Skipped("sort", "no compute"),))
    assert result.kernels == ()
    assert result.skipped == (("sort", "no compute"),)
    assert not result.interrupted


def test_seeds_from_other_conditions_are_measured_first(database: Database) -> None:
    conv, _ = two()
    run(database, (conv,), limits=Limits(trials=64))
    recorded = database.trials(conv.kernel.key, **UNDER)[1:]
    best = min(recorded, key=lambda t: t.time_s or 1.0)
    elsewhere = database.start_run(None, TARGETS["aarch64"], TOOLS)
    with database.writing() as sql:
        sql.execute(
            "update trials set target = ?, run = ?", [TARGETS["aarch64"].fingerprint, elsewhere]
        )
    result = run(database, (conv,), limits=Limits(trials=2), seed=9)
    assert result.known_trials == 0
    assert result.kernels[0].schedule == best.candidate.schedule


def test_without_seeds_the_heuristic_is_measured_first(database: Database) -> None:
    conv, _ = two()
    run(database, (conv,), limits=Limits(trials=8))
    default, first = database.trials(conv.kernel.key, **UNDER)[:2]
    assert default.candidate.schedule.algorithm == XLA
    assert first.candidate.schedule == conv.space.schedule(conv.space.heuristic())


def test_the_errors_of_the_whole_program_are_recorded(database: Database) -> None:
    found = report(database, run(database, two()).run)
    assert (found.relative_error, found.default_relative_error) == (2e-7, 1e-7)
    assert found.whole is not None


def test_a_whole_program_timed_in_vain_keeps_its_errors(database: Database) -> None:
    result = run(database, two(), compare_whole=lambda: replace(WHOLE, paired=None))
    assert result.speedup is None
    found = report(database, result.run)
    assert (found.whole, found.relative_error) == (None, 2e-7)


def test_progress_tells_the_story_in_order(database: Database) -> None:
    events, tasks = list[Event](), two()
    slow = FakeDevice(tasks, {"conv": 20e-3, "dense": 20e-3})
    run(database, tasks, slow, limits=Limits(trials=YOUNG), events=events)
    names = [type(e).__name__ for e in events]
    assert names == ["Started", *["KernelStarted", "Batch"] * 2, "Finalising", "Finished"]
    started, batch, finalising, finished = events[0], events[2], events[-2], events[-1]
    assert isinstance(started, Started)
    assert isinstance(batch, Batch)
    assert isinstance(finalising, Finalising)
    assert isinstance(finished, Finished)
    assert (started.kernels, finalising.kernels, finished.won) == (2, 2, 2)
    assert batch.label == "dense"  # 20 ms three times weigh more than once
    assert batch.best_s is not None
    assert batch.gflops == pytest.approx(1000 / batch.best_s / 1e9)
    assert batch.peak_share == pytest.approx(batch.gflops)


def test_where_trials_are_counted_their_pace_says_how_long_the_others_take(
    database: Database,
) -> None:
    events, limits = list[Event](), Limits(trials=2 * YOUNG)
    run(database, two(), limits=limits, events=events)
    batches = [e for e in events if isinstance(e, Batch)]
    assert all(b.is_estimate for b in batches)
    first, last = batches[0], batches[-1]
    assert first.remaining_s == pytest.approx(3 * first.elapsed_s, rel=0.5)  # 16 of 64 trials
    assert last.remaining_s == 0.0


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    trials = []
    for name in ("a.db", "b.db"):
        with Database(tmp_path / name) as opened:
            tasks = two()
            run(opened, tasks, model=Trees())
            trials.append([opened.trials(t.kernel.key, **UNDER) for t in tasks])
    assert trials[0] == trials[1]


def test_the_report_is_made_from_the_database(database: Database) -> None:
    result = run(database, two())
    text = result.report()
    assert "conv" in text
    assert "dense" in text


def test_medians_are_those_of_the_finals(database: Database) -> None:
    tasks = two()
    result = run(database, tasks)
    final = decision(database, tasks[0].kernel.key, **UNDER).final
    assert final is not None
    assert result.kernels[0].best_s == median(final.paired.tuned_s)

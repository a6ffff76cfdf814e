"""Ctrl-C wherever it comes in a whole run over several kernels; all without hardware."""

from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from hlotune.costmodel.trees import Trees
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.limits import Limits
from hlotune.search.experience import Experience
from hlotune.search.progress import Event, Finalising, Finished
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Whole
from tests.support.sessions import UNDER, FakeDevice, run, task, two


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def interrupted(*_: object, **__: object) -> int:
    raise KeyboardInterrupt


class Impatient(list[Event]):
    """Ctrl-C comes as an event of one kind is told."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, self.kind):
            raise KeyboardInterrupt


@pytest.mark.parametrize(("trials", "won"), [(0, 0), (16, 0), (64, 2), (160, 2)])
def test_ctrl_c_while_searching_keeps_what_was_found(
    database: Database, trials: int, won: int
) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + trials))
    assert result.interrupted
    assert result.speedup is None
    assert result.trials == trials
    assert len(result.won) == won


def test_a_run_after_an_interrupted_one_goes_on_where_that_was(tmp_path: Path) -> None:
    conv = (task("conv", 1),)
    with Database(tmp_path / "whole.db") as whole, Database(tmp_path / "parts.db") as parts:
        run(whole, conv, limits=Limits(trials=64), model=Trees())
        run(
            parts,
            conv,
            FakeDevice(conv, interrupt_at=1 + 32 + 5),
            limits=Limits(trials=64),
            model=Trees(),
        )
        run(parts, conv, limits=Limits(trials=64), model=Trees())
        key = conv[0].kernel.key
        ours = [
            [t for t in d.trials(key, **UNDER) if t.candidate.schedule.algorithm != XLA]
            for d in (whole, parts)
        ]
    assert len(ours[0]) == 64
    assert ours[0] == ours[1][:64]


def test_ctrl_c_while_timing_defaults_ends_the_run(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, interrupt_at=1))
    assert result.interrupted
    assert [k.label for k in result.kernels] == ["dense"]  # it does most of the arithmetic
    assert result.trials == 0


def test_ctrl_c_while_kin_teach_ends_the_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.search.contests.teach", interrupted)
    result = run(database, two())
    assert result.interrupted
    assert (result.kernels, result.trials) == ((), 0)


def test_ctrl_c_while_the_model_learns_from_what_is_known_ends_the_run(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Experience, "learn", interrupted)
    result = run(database, two())
    assert result.interrupted
    assert [k.label for k in result.kernels] == ["conv", "dense"]
    assert "unfinished" in result.report()


@pytest.mark.parametrize("step", ["trials", "keep_properties", "finish_run"])
def test_ctrl_c_while_the_database_is_asked_or_told_ends_the_run(
    database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    tasks = two()
    monkeypatch.setattr(Database, step, interrupted)
    result = run(database, tasks)
    assert result.interrupted
    assert [k.won for k in result.kernels] == ([] if step == "trials" else [True, True])
    assert "unfinished" in result.report()
    monkeypatch.undo()
    resumed = run(database, tasks, resume=result.run)
    assert not resumed.interrupted and len(resumed.won) == 2


def test_ctrl_c_once_a_run_is_recorded_as_finished_changes_nothing(database: Database) -> None:
    result = run(database, two(), events=Impatient(Finished))
    assert not result.interrupted
    assert (result.speedup, len(result.won)) == (2.0, 2)


def test_ctrl_c_in_the_finals_leaves_the_rest_undecided(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.search.finals.heats.BEHIND", inf)  # each final begins with a heat
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 192 + 3))
    assert result.interrupted
    assert [k.won for k in result.kernels] == [False, True]


def test_ctrl_c_while_the_finals_are_announced_ends_the_run(database: Database) -> None:
    result = run(database, two(), events=Impatient(Finalising))
    assert result.interrupted
    assert [k.won for k in result.kernels] == [False, False]
    assert result.trials == 192
    assert "conv" in result.report()


def test_ctrl_c_while_the_whole_program_is_timed_keeps_the_kernels(database: Database) -> None:
    def stopped() -> Whole | None:
        raise KeyboardInterrupt

    result = run(database, two(), compare_whole=stopped)
    assert result.interrupted
    assert result.speedup is None
    assert len(result.won) == 2

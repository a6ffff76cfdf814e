"""A run that was interrupted goes on as if it had never stopped, in searches and in its budget."""

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from hlotune.cli.resume import resume as command
from hlotune.costmodel.model import MODELS
from hlotune.costmodel.pretrained import start
from hlotune.costmodel.trees import Trees
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import TARGETS, host_target, toolchain
from hlotune.measure.trial import Trial
from hlotune.schedules.errors import DatabaseError, ModelError, NoRecord, TargetError
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.account import Entry, opened, sealed
from hlotune.search.budget.limits import Limits
from hlotune.search.progress import Batch, Event, Started
from hlotune.search.resume_queries import passed_s
from hlotune.search.resuming import interrupted, require_same, resume, same_model
from hlotune.search.searchers.searcher_state import packed
from hlotune.tuning_logs.database import Conditions, Database, conditions
from tests.support.sessions import PROGRAM, TARGET, TOOLS, UNDER, FakeDevice, run, two

ENTRIES = (Entry(1.5, 1.0, 16, 2, 1e-3, 2e-5), Entry(2.5, 0.75, 16, 0, float("inf")))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened_database:
        yield opened_database


def trials(database: Database, kernel: Kernel) -> list[Trial]:
    found = database.trials(kernel.key, **UNDER)
    return [t for t in found if t.candidate.schedule.algorithm != XLA]


def choices(events: list[Event]) -> list[tuple[str, int]]:
    """Which kernel had each batch, and how many trials there were after it."""
    return [(e.label, e.trials) for e in events if isinstance(e, Batch)]


def test_a_state_and_an_account_come_out_as_they_went_in() -> None:
    assert opened(sealed(b"state", ENTRIES)) == (b"state", ENTRIES)
    assert opened(sealed(b"", ())) == (b"", ())


def test_an_account_from_before_there_were_probes_is_read() -> None:
    rows = np.array([astuple(e)[:5] for e in ENTRIES])
    state = packed({"searcher": np.frombuffer(b"state", np.uint8), "account": rows})
    assert opened(state) == (b"state", tuple(replace(e, probe_s=0.0) for e in ENTRIES))


def test_a_state_without_an_account_is_taken_as_it_is() -> None:
    state = packed({"configs": np.arange(6)})
    assert opened(state) == (state, ())
    with pytest.raises(ValueError, match="expected the saved state of a searcher"):
        opened(b"rubbish")


@pytest.fixture(scope="module")
def never_stopped(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[list[Trial]], list[tuple[str, int]]]:
    """The trials of each kernel, and what was chosen one after the other."""
    tasks, events = two(), list[Event]()
    with Database(tmp_path_factory.mktemp("whole") / "whole.db") as whole:
        run(whole, tasks, limits=Limits(trials=96), events=events, model=Trees())
        return [trials(whole, task.kernel) for task in tasks], choices(events)


@pytest.mark.parametrize("requests", [2 + 5, 2 + 16 * 3 + 7, 2 + 16 * 9 + 15])
def test_a_run_taken_up_again_is_the_run_that_never_stopped(
    requests: int,
    tmp_path: Path,
    never_stopped: tuple[list[list[Trial]], list[tuple[str, int]]],
) -> None:
    tasks, limits = two(), Limits(trials=96)
    with Database(tmp_path / "parts.db") as parts:
        first, second = list[Event](), list[Event]()
        broken = FakeDevice(tasks, interrupt_at=requests)
        stopped = run(parts, tasks, broken, limits=limits, events=first, model=Trees())
        assert stopped.interrupted
        again = run(parts, tasks, limits=limits, events=second, resume=stopped.run, model=Trees())
        found = [trials(parts, task.kernel) for task in tasks]
        assert (found, choices(first) + choices(second)) == never_stopped
        assert again.run == stopped.run
        assert not again.interrupted


def test_defaults_are_not_timed_again(database: Database) -> None:
    tasks = two()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 20))
    before = {t.label: 6e-3 for t in tasks}
    run(database, tasks, FakeDevice(tasks, {"conv": 1.0, "dense": 1.0}), resume=stopped.run)
    recorded = [
        t.time_s
        for task in tasks
        for t in database.trials(task.kernel.key, **UNDER)
        if t.candidate.schedule.algorithm == XLA
    ]
    assert recorded == list(before.values())


def test_what_was_spent_is_spent(database: Database) -> None:
    tasks, limits = two(), Limits(seconds=12.0)
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 80), limits=limits)
    spent_s = passed_s(database, stopped.run)
    assert spent_s == pytest.approx(4.0, rel=0.2)
    device = FakeDevice(tasks)
    run(database, tasks, device, limits=limits, resume=stopped.run)
    assert device.now() < 12.0 - spent_s + 0.6


def test_trials_of_the_run_itself_do_not_count_as_known(database: Database) -> None:
    tasks, events = two(), list[Event]()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    again = run(database, tasks, resume=stopped.run, events=events)
    assert (again.trials, again.known_trials) == (192, 0)
    (started,) = (e for e in events if isinstance(e, Started))
    assert started.known_trials == 0
    assert started.own_trials == stopped.trials


def test_what_another_run_spent_is_not_spent_by_the_one_that_goes_on(database: Database) -> None:
    tasks = two()
    run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    second = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 5))
    run(database, tasks, resume=second.run)
    measured = database.query(
        "select count(*) as n from trials where run = :run", {"run": second.run}
    )
    assert measured == [{"n": 2 + 192}]  # defaults, and 96 of each kernel


def test_late_in_its_budget_a_run_goes_on_with_all_kernels_that_it_had_begun(
    database: Database,
) -> None:
    tasks, limits = two(), Limits(seconds=12.0)
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=144), limits=limits)
    assert passed_s(database, stopped.run) > 0.5 * 12.0
    again = run(database, tasks, limits=limits, resume=stopped.run)
    assert again.skipped == ()
    assert [(k.label, k.best_s is not None) for k in again.kernels] == [
        ("conv", True), ("dense", True),
    ]  # fmt: skip


@pytest.mark.parametrize("budget_s", [10.0, 30.0, 100.0])
def test_a_budget_is_kept_within_a_twentieth(budget_s: float, database: Database) -> None:
    """By the clock of the device, with defaults, batches and finals; less only if nothing promises
    to gain any more."""
    tasks, events = two(), list[Event]()
    device = FakeDevice(tasks)
    run(database, tasks, device, limits=Limits(seconds=budget_s), events=events)
    assert device.now() <= 1.05 * budget_s
    remaining_s = [e.remaining_s for e in events if isinstance(e, Batch)][-1]
    is_idle = len(choices(events)) > 20
    assert is_idle or remaining_s < 0.1 * budget_s


def test_the_beginning_of_an_id_names_an_interrupted_run(database: Database) -> None:
    tasks = two()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    found = interrupted(database, stopped.run[:6])
    assert (found.run, found.searcher, found.trials, found.budget_s) == (
        stopped.run, "annealing", 96, None
    )  # fmt: skip
    assert found.passed_s > 1.0


def test_a_run_that_is_not_known_is_an_error(database: Database) -> None:
    with pytest.raises(NoRecord, match="expected the beginning of one run's id, got 'zzz'"):
        interrupted(database, "zzz")


def test_a_run_that_finished_is_an_error(database: Database) -> None:
    done = run(database, two())
    with pytest.raises(DatabaseError, match=r"a run that was interrupted, got .* finished"):
        interrupted(database, done.run)


def test_a_program_that_has_changed_is_an_error(database: Database) -> None:
    tasks = two()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    before = interrupted(database, stopped.run)
    other = load(lambda x: x + 1, np.zeros(3, np.float32))
    with pytest.raises(DatabaseError, match=r"expected the program of run .* it is another one"):
        require_same(other, before, UNDER)


@pytest.mark.parametrize(
    "under",
    [
        conditions(TARGETS["x86-64-v3"], TOOLS),
        conditions(replace(TARGET, threads=1), TOOLS),
        conditions(TARGET, replace(TOOLS, codegen="1")),
        conditions(TARGET, TOOLS, "warm"),
    ],
)
def test_another_machine_or_other_versions_are_an_error(
    under: Conditions, database: Database
) -> None:
    tasks = two()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    before = interrupted(database, stopped.run)
    require_same(PROGRAM, before, UNDER)
    with pytest.raises(DatabaseError, match=r"expected the conditions of run .*begin anew with"):
        require_same(PROGRAM, before, under)


def test_a_run_of_another_machine_is_not_taken_up_on_this_one(database: Database) -> None:
    program = load(lambda x: x + 1, np.zeros(3, np.float32))
    options = {
        "searcher": "annealing", "model": "trees", "model_digest": None, "trials": 8,
        "budget_s": None,
    }  # fmt: skip
    away = replace(TARGET, name="another machine")
    begun = database.start_run(program, away, TOOLS, options=options)
    with pytest.raises(DatabaseError, match=r"expected the conditions of run .*begin anew with"):
        resume(program, begun, database=database.path)
    assert database.query("select * from trials") == []


def test_it_goes_on_with_several_devices_where_they_are_here(database: Database) -> None:
    program = load(lambda x: x + 1, np.zeros(3, np.float32))
    options = {
        "searcher": "annealing", "model": "trees", "model_digest": None, "trials": 8,
        "budget_s": None,
    }  # fmt: skip
    begun = database.start_run(program, host_target(), toolchain(), options=options)
    with pytest.raises(TargetError, match="expected a GPU as the target of 2 devices"):
        resume(program, begun, database=database.path, devices=2)


def test_another_trained_model_is_an_error(database: Database) -> None:
    tasks = two()
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    before = replace(interrupted(database, stopped.run), model_digest="0123")
    with pytest.raises(DatabaseError, match=r"expected the trained model that run .* began with"):
        same_model(before)


def test_a_run_that_began_with_a_model_file_goes_on_with_that_file(
    database: Database, tmp_path: Path
) -> None:
    tasks, file = two(), tmp_path / "roofline.npz"
    MODELS["roofline"]().save(file)
    digest = start("roofline", file).digest
    stopped = run(database, tasks, FakeDevice(tasks, interrupt_at=2 + 40))
    before = replace(interrupted(database, stopped.run), model="roofline", model_digest=digest)
    assert same_model(before, file).digest == digest
    with pytest.raises(DatabaseError, match=r"give its file \(--model-file\)"):
        same_model(before)


def test_the_command_reads_the_model_file(database: Database, tmp_path: Path) -> None:
    program = load("examples/mlp.py:model")
    options = {
        "searcher": "annealing", "model": "roofline", "model_digest": "0123", "trials": 8,
        "budget_s": None,
    }  # fmt: skip
    begun = database.start_run(program, host_target(), toolchain(), options=options)
    (tmp_path / "m").write_bytes(b"no model")
    with pytest.raises(ModelError, match="expected a file of a cost model at"):
        command(begun, program.source, database=database.path, model_file=tmp_path / "m", json=True)

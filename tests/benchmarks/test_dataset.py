"""The dataset is recorded part by part, can be left at any time, and goes on where it stopped."""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import dataset
from benchmarks.dataset import (
    BATCH,
    LEAST_BATCH,
    Part,
    Recorder,
    batch_size,
    gigaflops,
    table,
    take_up,
)
from benchmarks.dataset_kernels import source
from benchmarks.searching import Operator
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.timing.timing import Effort, Subject, sampled
from hlotune.schedules.errors import DatabaseError
from hlotune.search.learning.training_rows import examples
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.records import export_records, import_records
from tests.support import recorded
from tests.support.computes import gemm
from tests.support.sessions import PROGRAM, PROPERTIES, TARGET, FakeDevice, place, two
from tests.support.tree import ROOT

PLAN = Part("random", 10), Part("annealing", 40)


def recorder(
    database: Database,
    tasks: tuple[Task, ...],
    device: FakeDevice | SimulatedDevice | None = None,
) -> Recorder:
    device = device or FakeDevice(tasks)
    found = Recorder(
        database, device, device, TARGET, PROPERTIES, plan=PLAN, extended=Part("annealing", 50)
    )
    for task in tasks:
        program = replace(PROGRAM, key=task.label)
        found._operators[task.label] = Operator(task.label, program, place(task), task)  # type: ignore[arg-type]
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "dataset.db") as opened:
        yield opened


def test_each_kernel_gets_its_first_part_before_any_gets_its_second(database: Database) -> None:
    recorder(database, two()).record(["conv", "dense"])
    runs = database.query(
        """select label, json_extract(options, '$.searcher') as searcher, count(*) as trials
        from trials join runs on runs.id = run join sites on sites.kernel = trials.kernel
        where schedule not like '%xla%' group by run order by min(recorded)"""
    )
    parts = [(row["label"], row["searcher"], row["trials"]) for row in runs]
    assert parts == [
        ("conv", "random", 10),
        ("dense", "random", 10),
        ("conv", "annealing", 30),
        ("dense", "annealing", 30),
    ]
    assert not database.query("select * from runs where finished is null")


@pytest.mark.parametrize("at", [0, 1, 5, 11, 30, 45, 80])
def test_it_goes_on_where_it_was_interrupted(database: Database, at: int) -> None:
    tasks = two()
    with pytest.raises(KeyboardInterrupt):
        recorder(database, tasks, FakeDevice(tasks, interrupt_at=at)).record(["conv", "dense"])
    again = recorder(database, tasks)
    again.record(["conv", "dense"])
    assert [again.line(name).trials for name in ("conv", "dense")] == [40, 40]
    twice = database.query("select 1 from trials group by kernel, schedule having count(*) > 1")
    assert not twice


def test_a_deadline_that_is_over_starts_nothing(database: Database) -> None:
    late = recorder(database, two())
    late.record(["conv", "dense"], deadline_s=-inf)
    assert not database.query("select 1 from trials")


def test_what_is_complete_is_not_measured_again(database: Database) -> None:
    recorder(database, two()).record(["conv", "dense"])
    device = FakeDevice(two())
    recorder(database, two(), device).record(["conv", "dense"])
    assert device.requests == 0


def test_a_kernel_far_behind_its_default_is_extended(database: Database) -> None:
    tasks = two()
    device = FakeDevice(tasks, default_s={"conv": 1e-9, "dense": 1.0})
    found = recorder(database, tasks, device)
    found.record(["conv", "dense"])
    assert [found.line(name).trials for name in ("conv", "dense")] == [50, 40]


def test_what_other_machines_found_best_is_timed_here_before_anything_is_drawn(
    database: Database,
) -> None:
    tasks = two()
    theirs = recorder(database, tasks)
    theirs.target = replace(TARGET, threads=TARGET.threads + 1)
    theirs.record(["conv"])
    best = theirs.line("conv").best_s
    late = recorder(database, tasks)
    late.plan = (Part("random", 2),)
    late.record(["conv"])
    assert [late.line("conv").trials, late.line("conv").best_s] == [3, best]
    runs = database.query(
        """select json_extract(options, '$.searcher') as searcher, count(*) as trials
        from trials join runs on runs.id = run where trials.threads = :threads
        and schedule not like '%xla%' group by run order by min(recorded)""",
        {"threads": TARGET.threads},
    )
    assert [(r["searcher"], r["trials"]) for r in runs] == [("elsewhere", 1), ("random", 2)]
    device = FakeDevice(tasks)
    again = recorder(database, tasks, device)
    again.plan = late.plan
    again.record(["conv"])
    assert device.requests == 0


def test_what_other_machines_found_best_is_none_of_what_was_drawn_at_random(
    database: Database,
) -> None:
    """The heuristic's schedule leads the plan and is not drawn either."""
    case = gemm(96, 128, 128)
    task = Task(case.kernel, "gemm", 1.0, case.compute, case.space(TARGET))
    theirs, here = (recorder(database, (task,), SimulatedDevice(TARGET)) for _ in range(2))
    theirs.target = replace(TARGET, threads=TARGET.threads + 1)
    for one, part in ((theirs, Part("annealing", 16)), (here, Part("random", 20))):
        one.plan, one.extended = (part,), part
        one.record(["gemm"])
    (found,) = [e for e in examples(database) if e.drawn.any()]
    assert len(found.times_s) == 21
    assert len(found.at_random.times_s) == 19
    (lent,) = database.query(
        """select time_s from trials join runs on runs.id = run
        where json_extract(options, '$.searcher') = 'elsewhere' and schedule not like '%xla%'"""
    )
    assert lent["time_s"] in found.times_s
    assert lent["time_s"] not in found.at_random.times_s


def test_what_is_missing_is_named_kernel_by_kernel(database: Database) -> None:
    tasks = two()
    found = recorder(database, tasks, FakeDevice(tasks, default_s={"conv": 1e-9, "dense": 1.0}))
    assert found.missing(["conv", "dense"]) == [
        "conv: 0 trials of 40; go on",
        "dense: 0 trials of 40; go on",
    ]
    found.record(["conv", "dense"])
    assert found.missing(["conv", "dense"]) == [
        "conv: more than 1.3x slower than the default compiler"
    ]


def test_the_heuristic_is_the_first_of_all(database: Database) -> None:
    tasks = two()
    recorder(database, tasks).record(["conv"])
    first = tasks[0].space.schedule(tasks[0].space.heuristic()).to_json()
    rows = database.query("select schedule from trials where schedule not like '%xla%'")
    assert rows[0]["schedule"] == first


def test_exported_records_are_the_same_bytes_from_another_database(
    database: Database, tmp_path: Path
) -> None:
    recorder(database, two()).record(["conv", "dense"])
    once, again = tmp_path / "once.jsonl.gz", tmp_path / "again.jsonl.gz"
    lines = export_records(database, once)
    with Database(tmp_path / "other.db") as other:
        assert import_records(other, once).broken == 0
        assert export_records(other, again) == lines
    assert once.read_bytes() == again.read_bytes()
    with gzip.open(once, "rt") as source:
        assert all(json.loads(line)["hlotune"] == 1 for line in source)


def test_a_batch_takes_about_ten_seconds_at_most() -> None:
    assert batch_size(100, 0.05) == BATCH
    assert batch_size(100, 0.5) == 20
    assert batch_size(100, 60.0) == LEAST_BATCH
    assert batch_size(3, 0.05) == 3


def test_a_first_batch_is_small_as_long_as_nobody_knows_how_long_a_trial_takes() -> None:
    assert batch_size(100, 0.0) == LEAST_BATCH


def test_the_table_says_how_much_there_is(database: Database) -> None:
    found = recorder(database, two())
    found.record(["conv"])
    lines = [found.line(name) for name in ("conv", "dense")]
    assert table(lines).notes == ["40 trials of 1 kernels in 2 families"]
    assert gigaflops(lines[1]) == "-"
    assert gigaflops(replace(lines[0], flops=10**9, best_s=1e-2)) == "100.0"


def test_less_effort_takes_fewer_samples() -> None:
    subject = Subject(lambda: 1e-3, lambda: 0.0)
    assert len(sampled(subject, effort=Effort(least_samples=2, most_samples=4))) == 4


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of trials as it comes with the sources, in the working directory."""
    monkeypatch.setattr(dataset, "source", lambda name: f"{ROOT}/{source(name)}")
    monkeypatch.chdir(tmp_path)
    dataset.FILE.parent.mkdir()
    with recorded.filled(tmp_path / "elder.db") as elder:
        export_records(elder, dataset.FILE)
    return dataset.FILE


def test_a_new_database_does_not_make_the_file_lose_its_trials(
    committed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = committed.read_bytes()
    device = SimpleNamespace(properties=lambda: PROPERTIES)
    monkeypatch.setattr(dataset, "ProcessBuilder", lambda target: nullcontext())
    monkeypatch.setattr(dataset, "ProcessRunner", lambda target, effort: nullcontext(device))
    options = ["--seconds", "0", "--kernels", "gemm_0", "--export", str(committed)]
    monkeypatch.setattr(sys, "argv", ["dataset", *options])
    assert dataset.main() == 1
    assert committed.read_bytes() == before
    with Database("build/dataset.db") as database:
        assert database.query("select 1 from trials")


def test_a_file_that_cannot_be_read_whole_is_not_written_again(
    committed: Path, database: Database
) -> None:
    committed.write_bytes(gzip.compress(gzip.decompress(committed.read_bytes()) + b"broken\n"))
    with pytest.raises(DatabaseError, match=r"expected records in .*, got 1 broken lines \(line "):
        take_up(database, committed)


def test_without_a_file_of_trials_there_is_nothing_to_take_up(
    database: Database, tmp_path: Path
) -> None:
    take_up(database, tmp_path / "missing.jsonl.gz")
    assert not database.query("select 1 from trials")

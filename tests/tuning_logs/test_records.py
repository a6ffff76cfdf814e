"""JSON lines: what is exported can be imported anywhere, twice, and with lines broken."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hlotune.hlo.kernel import Kernel
from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.listing import ls
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.records import Imported, export_records, import_records
from hlotune.tuning_logs.revoke import WRONG, take_back
from tests.support.recorded import HERE, KERNEL, TARGET, contents, filled, measured, schedule

EXPORTED = [table for table in TABLES if table != "states"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with filled(tmp_path / "tuning.db") as database:
        yield database


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "empty.db") as database:
        yield database


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
def test_an_import_equals_what_was_exported(
    database: Database, empty: Database, tmp_path: Path, name: str
) -> None:
    assert export_records(database, tmp_path / name) == 10
    assert import_records(empty, tmp_path / name) == imported(records=10, added=10)
    assert contents(empty, *EXPORTED) == contents(database, *EXPORTED)
    assert check(empty).problems == ()
    assert decision(empty, KERNEL.key, **HERE) == decision(database, KERNEL.key, **HERE)


def test_importing_twice_changes_nothing(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    export_records(database, tmp_path / "r.jsonl")
    import_records(empty, tmp_path / "r.jsonl")
    before = contents(empty, *TABLES)
    assert import_records(empty, tmp_path / "r.jsonl") == imported(records=10, added=0)
    assert contents(empty, *TABLES) == before
    everything = contents(database, *TABLES)
    import_records(database, tmp_path / "r.jsonl")
    assert contents(database, *TABLES) == everything


def test_a_champion_taken_back_after_an_import_is_taken_back_by_the_next(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    export_records(database, tmp_path / "won.jsonl")
    import_records(empty, tmp_path / "won.jsonl")
    take_back(database, KERNEL.key, WRONG, numerics="standard", **HERE)
    export_records(database, tmp_path / "taken back.jsonl")
    for name in ("taken back.jsonl", "won.jsonl", "taken back.jsonl"):
        import_records(empty, tmp_path / name)
        assert contents(empty, *EXPORTED) == contents(database, *EXPORTED)
    assert decision(empty, KERNEL.key, **HERE).reason == f"kept default: {WRONG}"
    assert {line.speedup for line in ls(empty)} == {None}


def test_only_a_name_in_gz_is_compressed(database: Database, tmp_path: Path) -> None:
    export_records(database, tmp_path / "r.jsonl")
    export_records(database, tmp_path / "r.jsonl.gz")
    packed = gzip.decompress((tmp_path / "r.jsonl.gz").read_bytes())
    assert packed == (tmp_path / "r.jsonl").read_bytes()


def test_a_record_stands_alone(database: Database, empty: Database, tmp_path: Path) -> None:
    record = trial_record(database, tmp_path)
    assert Kernel(record["kernel"]["text"]) == KERNEL
    assert record["target"]["identity"]["isa"] == TARGET.isa
    assert record["toolchain"]["jaxlib"] == "0.10.2"
    assert record["schedule"]["steps"][0] == ["Split", "out", "i0", [2, 1]]
    assert record["samples_s"] == [1.25e-3, 1e-3, 0.75e-3]
    assert import_lines(empty, tmp_path, record) == imported(records=1, added=1)
    assert empty.trials(KERNEL.key, **HERE) == [measured(1e-3, 1)]


def test_records_older_than_judged_failures_and_withdrawals_are_read(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    older = exported_lines(database, tmp_path)
    for record in older:
        record.pop("withdrawn", None)
        if record.get("failure_kind"):
            record["numerics"] = None
    assert import_lines(empty, tmp_path, *older) == imported(records=10, added=10)
    assert contents(empty, *EXPORTED) == contents(database, *EXPORTED)


def test_a_run_known_by_its_trials_alone_is_completed_later(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    lines = exported_lines(database, tmp_path)
    import_lines(empty, tmp_path, *reversed(lines))
    assert contents(empty, *EXPORTED) == contents(database, *EXPORTED)


def broken(record: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """A copy in which `{"a.b": 1}` replaces `record["a"]["b"]`."""
    copy: dict[str, Any] = json.loads(json.dumps(record))
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = copy
        for name in parents:
            place = place[name]
        place[last] = value
    return copy


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hlotune": 2}, "expected format 1, got 2: upgrade hlotune"),
        ({"record": "song"}, "KeyError: 'song'"),
        ({"samples_s": []}, "expected samples in seconds"),
        ({"samples_s": [1.0, "fast"]}, "expected samples in seconds"),
        ({"samples_s": [0]}, "expected samples in seconds"),
        ({"samples_s": None}, "expected one of schedule, build, timeout"),
        ({"cache": "cold"}, "expected one of model, warm, got 'cold'"),
        ({"clock": "wall"}, "expected one of kernel, call, got 'wall'"),
        ({"numerics": "sloppy"}, "expected one of strict, standard, fast"),
        ({"number": "third"}, "expected number as a whole number, got 'third'"),
        ({"number": 1 << 70}, "expected number as a number from 0 to 9.22337e+18"),
        ({"id": None}, "IntegrityError"),
        ({"kernel": None}, "TypeError"),
        ({"kernel.text": 5}, "TypeError"),
        ({"target.identity": {}}, "KeyError: 'kind'"),
        ({"target.identity.colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"toolchain": {"jaxlib": "1"}}, "TypeError"),
        ({"run.cache": "cold"}, "expected one of model, warm"),
    ],
)
def test_a_record_is_skipped_for(
    database: Database, empty: Database, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    good = trial_record(database, tmp_path)
    bad = broken(good, change)
    found = import_lines(empty, tmp_path, bad, good)
    assert (found.records, found.broken) == (1, 1)
    assert found.problems[0].startswith("line 1: ")
    assert problem in found.problems[0]
    assert empty.trials(KERNEL.key, **HERE) == [measured(1e-3, 1)]


def test_lines_that_are_no_json_are_skipped_and_counted(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    good = json.dumps(trial_record(database, tmp_path))
    cut = good[: len(good) // 2]
    text = "\n".join(["", "[1, 2]", "5", "null", cut, "{}", "[" * 100_000, good, "x", "x"])
    (tmp_path / "r.jsonl").write_text(text)
    found = import_records(empty, tmp_path / "r.jsonl")
    assert (found.records, found.added, found.broken) == (1, 1, 8)
    assert len(found.problems) == 5


def test_a_broken_line_leaves_nothing_of_itself(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    bad = broken(trial_record(database, tmp_path), {"number": "third"})
    import_lines(empty, tmp_path, bad)
    assert not any(contents(empty, *TABLES).values())


def test_a_line_that_is_not_utf_8_spoils_no_other(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    record = trial_record(database, tmp_path)
    bad = json.dumps(broken(record, {"kernel.text": "KERNEL"})).encode().replace(b"KERNEL", b"\xff")
    (tmp_path / "r.jsonl").write_bytes(bad + b"\n" + json.dumps(record).encode())
    found = import_records(empty, tmp_path / "r.jsonl")
    assert (found.records, found.broken) == (1, 1)
    assert "UnicodeEncodeError" in found.problems[0]


def test_a_name_in_gz_that_is_not_compressed_gives_nothing(empty: Database, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl.gz").write_text("{}")
    found = import_records(empty, tmp_path / "r.jsonl.gz")
    assert (found.records, found.broken) == (0, 1)
    assert "the file cannot be read further (Not a gzipped file" in found.problems[0]


def test_a_schedule_of_another_version_is_kept_but_not_used(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    other = broken(trial_record(database, tmp_path), {"schedule": {"algorithm": "x", "twists": []}})
    assert import_lines(empty, tmp_path, other).added == 1
    assert empty.trials(KERNEL.key, **HERE) == []
    assert empty.unreadable == 1
    assert trial_record(empty, tmp_path, failed=None)["schedule"] == other["schedule"]


def test_a_compressed_file_cut_short_gives_what_can_be_read(
    database: Database, empty: Database, tmp_path: Path
) -> None:
    run_of_many = database.query("select id from runs")[0]["id"]
    many = [measured(1e-3, n) for n in range(2000)]
    database.add(run_of_many, KERNEL, many, batch=2)
    path = tmp_path / "r.jsonl.gz"
    export_records(database, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = import_records(empty, path)
    assert found.records > 100
    assert "the file cannot be read further" in found.problems[-1]


def test_a_file_that_is_not_there_is_refused(empty: Database, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"cannot be read or written \(No such file"):
        import_records(empty, tmp_path / "none.jsonl")


def test_an_export_to_nowhere_is_refused(database: Database, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"cannot be read or written \(No such file"):
        export_records(database, tmp_path / "no" / "r.jsonl")


def test_an_export_that_fails_leaves_the_old_file(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("old")

    def full(value: object, **_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hlotune.tuning_logs.records.json.dumps", full)
    with pytest.raises(DatabaseError, match="No space left"):
        export_records(database, path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def imported(records: int, added: int) -> Imported:
    return Imported(records=records, added=added, broken=0, problems=())


def exported_lines(database: Database, folder: Path) -> list[dict[str, Any]]:
    export_records(database, folder / "all.jsonl")
    return [json.loads(line) for line in (folder / "all.jsonl").read_text().splitlines()]


def trial_record(database: Database, folder: Path, failed: str | None = None) -> dict[str, Any]:
    """The record of the first trial of a schedule of ours."""
    return next(
        record
        for record in exported_lines(database, folder)
        if record["record"] == "trial"
        and record["failure_kind"] == failed
        and record["schedule"]["algorithm"] != "xla"
    )


def import_lines(database: Database, folder: Path, *lines: dict[str, Any]) -> Imported:
    path = folder / "some.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return import_records(database, path)


def test_the_schedule_of_a_record_is_the_one_that_was_tried(
    database: Database, tmp_path: Path
) -> None:
    assert (
        json.dumps(trial_record(database, tmp_path)["schedule"], separators=(",", ":"))
        == schedule(1).to_json()
    )

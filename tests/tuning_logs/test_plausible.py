"""Values that cannot be true are in no import and no merge, and `check` names them."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hlotune.cli.main import run_command
from hlotune.measure.timing.comparison import shared, speedup
from hlotune.schedules.errors import DatabaseError
from hlotune.search.finals.heats import CHAMPIONS
from hlotune.tuning_logs import plausible
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.merge import merge
from hlotune.tuning_logs.plausible import CONTENDERS, recomputed, require_plausible
from hlotune.tuning_logs.records import LONGEST_LINE, export_records, import_records
from tests.support.recorded import HERE, KERNEL, failed, filled, start

FUTURE = "2999-01-01T00:00:00+00:00"
SOON = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
NASTY = "\x1b]0;owned\x07"


def exported(tmp_path: Path, kind: str) -> dict[str, Any]:
    """The first record of a kind."""
    with filled(tmp_path / "tuning.db") as database:
        export_records(database, tmp_path / "exported.jsonl")
    lines = map(json.loads, (tmp_path / "exported.jsonl").read_text().splitlines())
    return next(line for line in lines if line["record"] == kind and _is_of_a_time(line))


def _is_of_a_time(line: dict[str, Any]) -> bool:
    return line.get("failure_kind") is None


def changed(record: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(record))
    *parents, last = path.split(".")
    place = copy
    for name in parents:
        place = place[name] if isinstance(place, dict) else place[int(name)]
    place[last] = value
    return copy


@pytest.mark.parametrize(
    ("kind", "path", "value", "problem"),
    [
        ("trial", "recorded", FUTURE, "expected recorded not later than now"),
        ("trial", "recorded", "yesterday", "expected recorded as 2026-01-31T23:59:59+00:00"),
        ("trial", "recorded", "20260131", "expected recorded as"),
        ("trial", "recorded", "2026-13-01T00:00:00+00:00", "month must be in 1..12"),
        ("trial", "error", float("inf"), "expected error as a number from 0"),
        ("trial", "error", -1.0, "expected error as a number from 0"),
        ("trial", "error", float("nan"), "expected error as a number from 0"),
        ("trial", "build_s", 1e30, "expected build_s as a number from 0 to 1e+07"),
        ("trial", "relative_error", float("inf"), "expected relative_error as a number"),
        ("trial", "samples_s", [1e9], "expected samples_s as a number"),
        ("trial", "threads", -2, "expected threads as a number from 0"),
        ("trial", "batch", 0.5, "expected batch as a whole number"),
        ("trial", "id", f"id{NASTY}", "expected id without control characters"),
        ("trial", "kernel.label", NASTY, "expected label without control characters"),
        ("trial", "target.identity.name", NASTY, "expected name without control characters"),
        ("trial", "target.properties.clock_hz", float("inf"), "Out of range float"),
        ("trial", "target.properties.clock_hz", 1e300, "expected properties as a number"),
        ("trial", "target.properties.flops_per_s.f32", -1, "expected properties as a number"),
        ("trial", "run.started", FUTURE, "expected started not later than now"),
        ("trial", "run.seed", 1e30, "expected seed as a whole number"),
        ("trial", "run.notes", [NASTY], "expected notes without control characters"),
        ("run", "finished", FUTURE, "expected finished not later than now"),
        ("run", "program.name", "a\u202eb", "expected name without control characters"),
        ("run", "program.source", NASTY, "expected source without control characters"),
        ("run", "sites.0.weight", float("inf"), "expected weight as a number"),
        ("run", "summary.skipped", [["dot", NASTY]], "expected summary without control"),
        ("final", "decided", FUTURE, "expected decided not later than now"),
        ("final", "flops", -1, "expected flops as a number from 0"),
        ("final", "withdrawn", NASTY, "expected withdrawn without control characters"),
        ("final", "tuned_s", [1.0] * 31, "expected samples that prove the schedule faster"),
        ("final", "tuned_s", [1e-3], "argument 2 is shorter"),
    ],
)
def test_a_line_whose_values_cannot_be_true_is_skipped(
    kind: str, path: str, value: object, problem: str, tmp_path: Path
) -> None:
    record = exported(tmp_path, kind)
    bad = changed(record, path, value)
    (tmp_path / "lines.jsonl").write_text(f"{json.dumps(bad)}\n{json.dumps(record)}\n")
    with Database(tmp_path / "empty.db") as empty:
        found = import_records(empty, tmp_path / "lines.jsonl")
        assert (found.records, found.broken) == (1, 1)
        assert problem in found.problems[0]
        assert check(empty).problems == ()


def test_clocks_of_two_machines_may_differ_by_minutes(tmp_path: Path) -> None:
    record = changed(exported(tmp_path, "trial"), "recorded", SOON)
    (tmp_path / "lines.jsonl").write_text(json.dumps(record))
    with Database(tmp_path / "empty.db") as empty:
        assert import_records(empty, tmp_path / "lines.jsonl").records == 1


@pytest.mark.parametrize("name", ["speedup", "low", "high", "margin"])
def test_a_claimed_speedup_counts_for_nothing_beside_its_samples(name: str, tmp_path: Path) -> None:
    record = exported(tmp_path, "final")
    lines = [changed(record, name, value) for value in (1e6, float("inf"), float("nan"))]
    for line in lines:
        (tmp_path / "lines.jsonl").write_text(json.dumps(line))
        with Database(tmp_path / "empty.db") as empty:
            assert import_records(empty, tmp_path / "lines.jsonl").records == 1
            (row,) = empty.query("select * from finals")
        assert row["speedup"] == record["speedup"] == pytest.approx(2.0)
        assert row["low"] in {
            speedup(record["default_s"], record["tuned_s"], shared(n)).low for n in CONTENDERS
        }
        assert row["margin"] == row["low"] - 1


def test_an_honest_final_is_imported_as_it_is(tmp_path: Path) -> None:
    record = exported(tmp_path, "final")
    row = {**record, "default_s": json.dumps(record["default_s"])}
    row["tuned_s"] = json.dumps(record["tuned_s"])
    assert recomputed(row) == row


def test_the_confidence_may_be_shared_by_as_many_as_finals_have() -> None:
    assert tuple(range(1, CHAMPIONS + 1)) == CONTENDERS


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("update trials set recorded = '{'", "expected recorded as"),
        ("update trials set time_s = 1e-12 where time_s is not null", "the median of the samples"),
        (f"update finals set decided = '{FUTURE}'", "expected decided not later than now"),
        ("update sites set weight = 9e999", "expected weight as a number"),
        ("update kernels set label = 'a' || char(27)", "expected label without control"),
    ],
)
def test_a_database_with_such_rows_is_not_merged_and_check_names_them(
    statement: str, problem: str, tmp_path: Path
) -> None:
    filled(tmp_path / "other.db").close()
    with closing(sqlite3.connect(tmp_path / "other.db")) as damaged:
        damaged.execute(statement)
        damaged.commit()
    with Database(tmp_path / "other.db") as other:
        assert any(problem in found for found in check(other).problems)
    refusal = pytest.raises(DatabaseError, match=r"expected rows that can be true, got one of \w+")
    with Database(tmp_path / "tuning.db") as database, refusal:
        merge(database, tmp_path / "other.db")


def test_speedups_of_a_merged_database_are_those_of_its_samples(tmp_path: Path) -> None:
    filled(tmp_path / "other.db").close()
    with closing(sqlite3.connect(tmp_path / "other.db")) as forged:
        forged.execute("update finals set speedup = 1000, margin = 999")
        forged.commit()
    with Database(tmp_path / "tuning.db") as database:
        merge(database, tmp_path / "other.db")
        assert decision(database, KERNEL.key, **HERE).final is not None
        assert {round(r["speedup"], 2) for r in database.query("select * from finals")} == {2, 0.98}


def test_messages_of_failures_are_recorded_without_control_characters(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        run = start(database)
        database.add(run, KERNEL, [failed(message=f"line 1\n\tline 2 {NASTY}")], batch=0)
        (row,) = database.query("select failure_message from trials")
        assert row["failure_message"] == "line 1\n\tline 2 \\x1b]0;owned\\x07"
        assert check(database).problems == ()


def test_a_run_without_readable_dates_is_reported_without_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "tuning.db").close()
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as damaged:
        damaged.execute("update runs set started = '{', summary = null")
        damaged.commit()
    assert run_command(["report", "mlp", "--database", str(tmp_path / "tuning.db")]) == 0
    assert capsys.readouterr().err == ""


def test_few_lines_are_in_memory_at_once_where_they_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LONGEST_LINE <= 1 << 22
    monkeypatch.setattr("hlotune.tuning_logs.records.LONGEST_LINE", 1000)
    from hlotune.tuning_logs.records import _chunk

    given = iter((n, "x" * 400) for n in range(10))
    assert [len(list(_chunk(given))) for _ in range(5)] == [3, 3, 3, 1, 0]


def test_columns_of_the_checks_are_columns_of_the_tables(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        for table, checks in plausible.CHECKS.items():
            columns = {r["name"] for r in database.query(f"pragma table_info({table})")}
            assert checks.keys() <= columns


def test_a_plain_row_passes() -> None:
    require_plausible("programs", {"key": "k", "name": "größe 2", "source": "a\nb\tc"})

"""Rows that cannot be used are one error that says which, and never a traceback."""

import sqlite3
from pathlib import Path

import pytest

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs import records
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.listing import failures, ls
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.records import export_records, import_records
from hlotune.tuning_logs.report import report
from tests.support.recorded import HERE, KERNEL, PROGRAM, filled

DAMAGES = {
    "versions are a number": "update toolchains set versions = '5'",
    "versions are no JSON": "update toolchains set versions = '{'",
    "peaks are a list": "update targets set properties = '[1]'",
    "peaks are texts": """update targets set properties =
        '{"flops_per_s": {"f32": "x"}, "read_bytes_per_s": 1.0, "clock_hz": 1.0}'""",
    "the target is gone": "update runs set target = 'gone'",
    "options are a list": "update runs set options = '[]'",
    "a summary is a number": "update runs set summary = '7'",
    "numerics are unknown": "update finals set numerics = 'sloppy', decision = 'tuned'",
    "an outcome is unknown": "update finals set decision = 'maybe'",
    "a cache mode is unknown": "update trials set cache = 'cold'",
    "a clock is unknown": "update trials set clock = 'sun' where failure_kind is null",
    "a failure is unknown": "update trials set failure_kind = 'x' where failure_kind is not null",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    filled(tmp_path / "tuning.db").close()
    return tmp_path / "tuning.db"


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("name", DAMAGES)
def test_what_reads_a_damaged_row_says_so_or_goes_without_it(name: str, path: Path) -> None:
    damage(path, DAMAGES[name])
    for read in (
        lambda database: report(database, PROGRAM.name),
        lambda database: decision(database, KERNEL.key, **HERE),
        lambda database: (ls(database), failures(database)),
    ):
        try:
            with Database(path, read_only=True) as database:
                read(database)
        except DatabaseError as error:
            assert "expected rows that can be used, got" in str(error)
            assert "`tune db check` lists them" in str(error)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_check_finds_the_damaged_row(name: str, path: Path) -> None:
    with Database(path) as database:
        assert check(database).problems == ()
    damage(path, DAMAGES[name])
    with Database(path) as database:
        assert check(database).problems


def test_a_report_of_a_damaged_run_is_an_error_with_the_row(path: Path) -> None:
    damage(path, DAMAGES["versions are a number"])
    with (
        pytest.raises(DatabaseError, match=r"got toolchains \w+: .*`tune db check` lists them"),
        Database(path, read_only=True) as database,
    ):
        report(database, PROGRAM.name)


def test_a_mistake_beside_sound_rows_stays_what_it_is(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Database(path):
        _ = 1 / 0
    with pytest.raises(KeyError, match="mistake"), Database(path):
        raise KeyError("mistake")


def test_a_failure_without_a_message_is_listed(path: Path) -> None:
    damage(path, "update trials set failure_message = null")
    with Database(path, read_only=True) as database:
        assert {f.message for f in failures(database)} == {""}


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("create trigger t after insert on trials begin delete from runs; end;", "trigger t"),
        ("drop table sites; create view sites as select 1 as program;", "view sites"),
    ],
)
def test_what_would_change_or_replace_a_table_is_refused(
    statement: str, named: str, path: Path
) -> None:
    damage(path, statement)
    with pytest.raises(DatabaseError, match=f"got the {named}, which hlotune does not make"):
        Database(path)


def test_a_view_of_the_user_does_no_harm(path: Path) -> None:
    damage(path, "create view mine as select * from trials")
    with Database(path) as database:
        assert check(database).problems == ()


def test_a_line_that_is_too_long_is_skipped_and_counted(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "records.jsonl"
    with Database(path) as database:
        written = export_records(database, lines)
    text = lines.read_text()
    monkeypatch.setattr(records, "LONGEST_LINE", 2 * max(map(len, text.splitlines())))
    lines.write_text("x" * 10 * records.LONGEST_LINE + "\n" + text)
    with Database(tmp_path / "other.db") as database:
        taken = import_records(database, lines)
    assert (taken.records, taken.broken) == (written, 1)
    assert taken.problems[0].startswith("line 1: it has more than")

"""A run outlives its database: what it recorded is kept beside a file that is gone."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hlotune.cli.progress import line, watching
from hlotune.schedules.errors import DatabaseError
from hlotune.search.budget.limits import Limits
from hlotune.search.progress import Batch, Event
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.keeping import Moved, rows_of
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.merge import merge
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.records import export_records, import_records
from tests.support.recorded import KERNEL, contents, filled, final, measured, start
from tests.support.sessions import FakeDevice, run, started, two


def removed(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def folder_removed(path: Path) -> None:
    shutil.rmtree(path.parent)


def replaced_by_moving(path: Path) -> None:
    filled(path.with_name("other.db")).close()
    path.with_name("other.db").replace(path)


def replaced_by_copying(path: Path) -> None:
    filled(path.with_name("other.db")).close()
    shutil.copy(path.with_name("other.db"), path)


def truncated(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database" * 10_000)


def put_back(path: Path) -> None:
    """An earlier copy, which has the run, but not all of it."""
    shutil.copy(path.with_name("early.db"), path)


LOSSES: dict[Callable[[Path], None], str] = {
    removed: "removed", renamed: "removed", folder_removed: "removed",
    replaced_by_moving: "replaced", replaced_by_copying: "replaced", truncated: "replaced",
    overwritten: "replaced", put_back: "replaced",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    filled(tmp_path / "folder" / "tuning.db").close()
    return tmp_path / "folder" / "tuning.db"


@pytest.mark.parametrize("lose", LOSSES, ids=lambda f: f.__name__)
def test_what_a_run_recorded_is_kept_whatever_becomes_of_the_file(
    lose: Callable[[Path], None], path: Path
) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        shutil.copy(path, path.with_name("early.db"))
        database.add(own, KERNEL, [measured(1e-3)], batch=0, state=b"0")
        with database.keeping(own, told.append):
            database.add(own, KERNEL, [measured(2e-3, 2)], batch=1, state=b"1")
            expected = list(rows_of(database.sql, own))
            lose(path)
            after = path.read_bytes() if path.exists() else None
            database.add(own, KERNEL, [measured(3e-3, 3)], batch=2, state=b"2")
            database.record_final(own, KERNEL, final())
            database.finish_run(own)
        (moved,) = told
        assert (moved.path, moved.why) == (path, LOSSES[lose])
        assert moved.kept == database.path == path.with_name(f"tuning.run-{own[:8]}.db")
        assert check(database).problems == ()
    assert (path.read_bytes() if path.exists() else None) == after
    with Database(moved.kept, create=False) as kept:
        rows = [row for row in rows_of(kept.sql, own) if row[0] == "trials"]
        assert rows[:2] == [row for row in expected if row[0] == "trials"]
        assert len(rows) == 3
        assert kept.checkpoint(own, KERNEL.key) == (2, b"2")
        assert [r["id"] for r in kept.query("select id from runs where finished is not null")] == [
            own
        ]


def test_what_is_kept_can_be_merged_into_the_file_that_was_put_there(path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        with database.keeping(own, told.append):
            replaced_by_copying(path)
            database.add(own, KERNEL, [measured(1e-3)], batch=0)
    with Database(path, create=False) as restored:
        assert merge(restored, told[0].kept)["trials"] == 1
        assert check(restored).problems == ()


def test_what_is_kept_takes_the_place_of_no_file(path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        (path.parent / f"tuning.run-{own[:8]}.db").write_text("another file")
        with database.keeping(own, told.append):
            path.unlink()
            database.add(own, KERNEL, [measured(1e-3)], batch=0)
    assert told[0].kept.name == f"tuning.run-{own[:8]}-1.db"
    assert (path.parent / f"tuning.run-{own[:8]}.db").read_text() == "another file"


def test_a_folder_that_takes_no_file_is_replaced_by_that_of_temporary_files(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Moved] = []
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with Database(path) as database:
        own = start(database)
        with database.keeping(own, told.append):
            shutil.rmtree(path.parent)
            path.parent.touch()
            database.add(own, KERNEL, [measured(1e-3)], batch=0)
    assert told[0].kept.parent == tmp_path / "temporary"


def test_where_nothing_can_be_kept_the_error_says_so(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file" / "none"))
    (tmp_path / "file").touch()
    with Database(path) as database:
        own = start(database)
        with (
            database.keeping(own, lambda _: None),
            pytest.raises(DatabaseError, match=r"it is gone, and the records of run .* neither"),
        ):
            shutil.rmtree(path.parent)
            path.parent.touch()
            database.add(own, KERNEL, [measured(1e-3)], batch=0)


@pytest.mark.parametrize("lose", [removed, replaced_by_moving])
def test_a_command_without_a_run_says_that_the_file_is_gone(
    lose: Callable[[Path], None], path: Path
) -> None:
    with Database(path) as database:
        lose(path)
        why = LOSSES[lose]
        with pytest.raises(DatabaseError, match=f"it was {why} while this command wrote to it"):
            start(database)


def test_other_writers_are_no_loss(path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database, Database(path) as other:
        own = start(database)
        with database.keeping(own, told.append):
            for batch in range(3):
                other.add(start(other), KERNEL, [measured(1e-3)], batch=batch)
                database.add(own, KERNEL, [measured(1e-3)], batch=batch)
            other.sql.vacuum()
            database.finish_run(own)
    assert told == []


def test_a_read_that_fails_as_the_file_is_gone_is_made_in_what_is_kept(path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        with database.keeping(own, told.append):
            truncated(path)
            assert database.query("select id from runs") == [{"id": own}]
    assert len(told) == 1


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.mark.parametrize("lose", [removed, replaced_by_copying])
def test_a_search_goes_on_when_its_database_is_gone_and_its_result_says_where_records_are(
    lose: Callable[[Path], None], database: Database
) -> None:
    tasks, limits, path = two(), Limits(trials=64), database.path
    events: list[Event] = []

    class Losing(FakeDevice):
        def measure(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
            if self.requests == 40:
                lose(path)
            return super().measure(*arguments, **named)  # type: ignore[arg-type]

    own = started(database, tasks, limits, 0)
    with database.keeping(own, events.append):
        result: TuneResult = run(
            database, tasks, Losing(tasks), limits=limits, resume=own, events=events
        )
    (moved,) = [e for e in events if isinstance(e, Moved)]
    assert result.database == moved.kept
    place = events.index(moved)
    assert any(isinstance(e, Batch) for e in events[:place])
    assert any(isinstance(e, Batch) for e in events[place:])
    with Database(moved.kept, read_only=True) as kept:
        counted = kept.query("select count(*) as n from trials where run = :run", {"run": own})
        assert counted == [{"n": 2 + 128}]
        assert len(kept.query("select * from finals")) == 2
        assert kept.query("select finished is not null as f from runs") == [{"f": 1}]
    assert result.report()


def test_the_records_of_a_kept_run_come_back_by_json_lines(path: Path, tmp_path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        with database.keeping(own, told.append):
            path.unlink()
            database.add(own, KERNEL, [measured(1e-3)], batch=0)
        export_records(database, tmp_path / "r.jsonl")
        before = contents(database, *TABLES)
    with Database(tmp_path / "new.db") as new:
        assert import_records(new, tmp_path / "r.jsonl").broken == 0
        assert contents(new, "trials") == {"trials": before["trials"]}


MOVED = Moved(Path("my db"), Path("my.run-1.db"), "removed")


def test_the_line_says_what_became_of_the_file_and_how_to_get_it_back() -> None:
    assert line(MOVED) == (
        "tune: database my db was removed while the run went on; what the run has recorded is kept "
        "in my.run-1.db, and it goes on there; to have it in both: "
        "tune db merge my.run-1.db --database 'my db'"
    )


def test_who_asked_for_quiet_is_told_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with watching(quiet=True) as progress:
        progress(MOVED)
    assert capsys.readouterr().err == line(MOVED) + "\n"


def test_a_file_with_the_run_but_of_another_program_is_none_of_ours(path: Path) -> None:
    told: list[Moved] = []
    with Database(path) as database:
        own = start(database)
        with database.keeping(own, told.append):
            path.unlink()
            with closing(sqlite3.connect(path)) as other:
                other.execute("create table bookmarks (url text)")
            database.add(own, KERNEL, [measured(1e-3)], batch=0)
    assert [m.why for m in told] == ["replaced"]

"""Databases are read where nothing can be written, and reading changes nothing."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
import sqlite_utils

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs import connection
from hlotune.tuning_logs.connection import ways_to_read
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.migrations import MIGRATIONS, TABLES, version
from tests.support.commands import tune
from tests.support.make_database_fixture import FIXTURES
from tests.support.recorded import HERE, KERNEL, contents, filled, measured, start
from tests.support.tree import ROOT

READING = (
    ("db", "ls"), ("db", "stats"), ("db", "export", "/dev/null"), ("db", "check"),
    ("report", "mlp"), ("show", "add"), ("kernels", "examples/mlp.py:model"),
    ("explain", "examples/mlp.py:model"), ("bench", "examples/mlp.py:model"),
    ("apply", "examples/mlp.py:model", "-o", "{out}"), ("model", "train", "-o", "{out}"),
    ("resume", "00"),
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    filled(tmp_path / "folder" / "tuning.db").close()
    return tmp_path / "folder" / "tuning.db"


def test_what_can_be_written_is_opened_so_that_sqlite_can_tidy_up() -> None:
    for has_wal in (True, False):
        ways = ways_to_read(may_write=True, has_wal=has_wal, is_stale=False)
        assert ways == ("mode=rw",)


def test_what_cannot_be_written_is_read_as_if_nobody_wrote_only_where_it_has_no_log() -> None:
    def ways(*, has_wal: bool, is_stale: bool) -> tuple[str, ...]:
        return ways_to_read(may_write=False, has_wal=has_wal, is_stale=is_stale)

    assert ways(has_wal=False, is_stale=False) == ("mode=ro", "immutable=1")
    assert ways(has_wal=True, is_stale=False) == ("mode=ro",)
    assert ways(has_wal=True, is_stale=True) == ("immutable=1",)
    assert ways(has_wal=False, is_stale=True) == ("immutable=1",)


def unprivileged(script: str, *arguments: str) -> dict[str, str]:
    """What a script prints as JSON in a process that is not root's."""
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED + script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


UNPRIVILEGED = """
import json, os, sys
from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.database import Database
from tests.support.recorded import HERE, KERNEL, measured, start
if os.geteuid() == 0:
    os.setgroups([])
    os.setegid(65534)
    os.seteuid(65534)
"""
TRYING = """
told = {}
try:
    with Database(sys.argv[1], read_only=True) as database:
        told["read"] = str(len(database.trials(KERNEL.key, **HERE)))
except DatabaseError as error:
    told["read"] = str(error)
try:
    with Database(sys.argv[1]) as database:
        start(database)
except DatabaseError as error:
    told["written"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture
def locked(path: Path) -> Path:
    """The database in a folder that takes no files from others than root; all may look into it."""
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    return path


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_database_in_a_folder_that_cannot_be_written_is_read(mode: str, locked: Path) -> None:
    locked.parent.chmod(0o755)
    with closing(sqlite3.connect(locked)) as older:
        older.execute(f"pragma journal_mode = {mode}")
    locked.parent.chmod(0o555)
    told = unprivileged(TRYING, str(locked))
    assert told["read"] == "4"
    assert "file or folder is read-only; copy it elsewhere" in told["written"]
    assert [p.name for p in locked.parent.iterdir()] == ["tuning.db"]


def test_a_log_that_cannot_be_taken_in_for_lack_of_rights_is_an_error(locked: Path) -> None:
    locked.parent.chmod(0o755)
    with closing(sqlite3.connect(locked, isolation_level=None)) as older:
        older.execute("pragma journal_mode = wal")
        older.execute("insert into toolchains values (1, 2)")
        for name in ("tuning.db", "tuning.db-wal"):
            shutil.copy(locked.with_name(name), locked.parent.parent / name)
    killed = locked.parent.parent / "killed"
    killed.mkdir()
    for name in ("tuning.db", "tuning.db-wal"):
        locked.parent.parent.joinpath(name).rename(killed / name)
        (killed / name).chmod(0o444)
    killed.chmod(0o555)
    told = unprivileged(TRYING, str(killed / "tuning.db"))
    assert "cannot be opened; check the path and the rights of file and folder" in told["read"]


def test_what_the_system_calls_read_only_is_read_without_writing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision alone, with what the system would say of a file system without writes."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    opened: list[str] = []
    connected = connection._connected

    def noted(path: Path, way: str) -> AbstractContextManager[sqlite_utils.Database]:
        opened.append(way)
        return connected(path, way)

    monkeypatch.setattr(connection, "_connected", noted)
    with Database(path, read_only=True) as database:
        assert len(database.trials(KERNEL.key, **HERE)) == 4
    assert opened == ["mode=ro"]


def test_reading_refuses_to_write(path: Path) -> None:
    with (
        Database(path, read_only=True) as database,
        pytest.raises(DatabaseError, match="expected to write, but file or folder is read-only"),
    ):
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)


@pytest.mark.parametrize("number", range(1, len(MIGRATIONS)))
def test_an_older_file_is_read_and_stays_as_it_is(number: int, path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as older:
        older.executescript((FIXTURES / f"database_v{number}.sql").read_text())
    before = path.read_bytes()
    with Database(path, read_only=True) as database:
        assert version(database.sql) == len(MIGRATIONS)
        assert len(database.trials(KERNEL.key, **HERE)) == 4
    assert path.read_bytes() == before


def emptied(path: Path, how: str) -> None:
    path.unlink(missing_ok=True)
    if how == "no bytes":
        path.touch()
    else:
        with closing(sqlite3.connect(path)) as made:
            made.execute("vacuum")
        assert path.stat().st_size > 0


@pytest.mark.parametrize("how", ["no bytes", "no tables"])
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_an_empty_file_is_no_database_and_no_look_at_it_makes_one(
    command: tuple[str, ...], how: str, tmp_path: Path
) -> None:
    path = tmp_path / "tuning.db"
    emptied(path, how)
    before = path.read_bytes()
    words = [word.format(out=tmp_path / "out") for word in command]
    done = tune(*words, "--database", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    *_, message = done.stderr.splitlines()  # before it, what was read, and libraries
    assert f"tune: database {path}: expected a tuning database, got an empty file" in message
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["tuning.db"]


@pytest.mark.parametrize("how", ["no bytes", "no tables"])
def test_an_empty_file_becomes_a_database_where_one_is_to_be_made(how: str, path: Path) -> None:
    emptied(path, how)
    with Database(path) as database:
        assert sorted(database.sql.table_names()) == sorted(TABLES)


def test_reading_changes_nothing(path: Path) -> None:
    before = path.read_bytes(), path.stat().st_mtime_ns
    with Database(path, read_only=True) as database:
        contents(database, *TABLES)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_version_that_no_hlotune_writes_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as damaged:
        damaged.execute("pragma user_version = -3")
    for read_only in (True, False):
        with pytest.raises(
            DatabaseError, match=rf"expected version 0 to {len(MIGRATIONS)}, got -3, which"
        ):
            Database(path, read_only=read_only)


def test_bytes_that_are_no_utf_8_are_shown_as_what_they_are(path: Path) -> None:
    with closing(sqlite3.connect(path)) as damaged:
        damaged.execute("update kernels set label = cast(x'61ff62' as text)")
        damaged.commit()
    with Database(path, read_only=True) as database:
        assert {r["label"] for r in database.query("select label from kernels")} == {"a\\xffb"}

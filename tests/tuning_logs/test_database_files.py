"""What happens to files of databases: made, refused, locked, torn, full."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.connection import connect
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.migrations import MIGRATIONS
from tests.support.recorded import (
    HERE,
    KERNEL,
    filled,
    measured,
    start,
)
from tests.support.tree import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    Database(tmp_path / "a" / "b" / "tuning.db").close()
    assert (tmp_path / "a" / "b" / "tuning.db").exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"expected a file, got a folder; name a file in it"):
        Database(tmp_path)


def test_a_missing_file_is_refused_where_none_is_to_be_made(path: Path) -> None:
    with pytest.raises(DatabaseError, match="expected a file, found none"):
        Database(path, create=False)
    assert not path.exists()


def test_a_place_where_no_folder_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match="it or its folder cannot be made"):
        Database(tmp_path / "file" / "deeper" / "tuning.db")


def test_a_file_that_cannot_be_made_leaves_no_folders(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DatabaseError, match=r"cannot be (opened; check the path|made or looked)"):
        Database(tmp_path / "a" / "b" / "c" / f"{'n' * 300}.db")
    assert not list((tmp_path / "a").iterdir())


def test_a_path_that_the_system_cannot_look_at_is_refused(tmp_path: Path) -> None:
    wanted = r"looked at \(File name too long\); name another|cannot be opened; check the path"
    with pytest.raises(DatabaseError, match=wanted):  # the latter from Python 3.14 on
        Database(tmp_path / f"{'n' * 300}.db")


def test_folders_that_cannot_all_be_made_are_not_left_half_way(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="it or its folder cannot be made"):
        Database(tmp_path / "a" / ("n" * 300) / "tuning.db")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is Linux's")
def test_a_folder_that_takes_no_files_is_refused_for_root_too() -> None:
    with pytest.raises(DatabaseError, match="cannot be opened; check the path and the rights"):
        Database("/proc/tuning.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(DatabaseError, match="cannot be opened; check the path and the rights"):
        Database(tmp_path / "locked" / "tuning.db")


def test_a_write_to_a_read_only_database_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        database.sql.execute("pragma query_only = on")
        with pytest.raises(DatabaseError, match="file or folder is read-only; copy it elsewhere"):
            database.add(run, KERNEL, [measured(1e-3)], batch=0)


def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("not a database\n" * 100)
    with pytest.raises(DatabaseError, match="expected a tuning database, got a file of another"):
        Database(path)
    assert path.read_text() == "not a database\n" * 100


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("create table bookmarks (url text)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="got another program's SQLite file"):
        Database(path)
    assert path.read_bytes() == before


def test_a_newer_version_is_refused_with_both_numbers(path: Path) -> None:
    filled(path).close()
    newer = sqlite3.connect(path)
    newer.execute("pragma user_version = 99")
    newer.close()
    with pytest.raises(
        DatabaseError,
        match=rf"expected version {len(MIGRATIONS)} or older, got version 99, .*upgrade",
    ):
        Database(path)


def test_a_damaged_file_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        for batch in range(20):
            database.add(run, KERNEL, [measured(1e-3, n) for n in range(20)], batch=batch)
    content = bytearray(path.read_bytes())
    half = len(content) // 2  # behind the schema
    content[half:] = b"\xaa" * (len(content) - half)
    path.write_bytes(content)
    with Database(path) as database:
        with pytest.raises(DatabaseError, match="the file is damaged; restore a copy"):
            database.trials(KERNEL.key, **HERE)
        assert any("the file is damaged" in problem for problem in check(database).problems)


def test_a_lock_held_too_long_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        other = connect(path, create=False)
        other.execute("BEGIN IMMEDIATE")
        database.sql.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(DatabaseError, match="another process has kept it locked"):
            database.add(run, KERNEL, [measured(1e-3)], batch=0)
        other.rollback()
        database.add(run, KERNEL, [measured(1e-3)], batch=0)
        other.close()


WRITER = """
import sys
from hlotune.tuning_logs.database import Database
from tests.support.recorded import KERNEL, measured, start
path, batches = sys.argv[1], int(sys.argv[2])
with Database(path) as database:
    run = start(database)
    print("started", flush=True)
    for batch in range(batches):
        trials = [measured(1e-3, n) for n in range(8)]
        database.add(run, KERNEL, trials, batch=batch, state=b"%d" % batch)
"""


def writer(path: Path, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(batches)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_many_processes_open_and_write_a_new_file_at_once(path: Path) -> None:
    writers = [writer(path, 10) for _ in range(4)]
    for process in writers:
        process.communicate()
    assert [process.returncode for process in writers] == [0] * 4
    with Database(path) as database:
        assert len(database.trials(KERNEL.key, **HERE)) == 4 * 10 * 8
        assert check(database).problems == ()


def test_a_writer_killed_at_any_instant_loses_at_most_the_batch_in_flight(path: Path) -> None:
    seen = 0
    for attempt in range(4):
        process = writer(path, 1_000_000)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 + 0.037 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Database(path) as database:
            assert check(database).problems == ()
            rows = database.query(
                """select count(*) as n, max(trials.batch) as last, states.batch as state
                from trials join states on states.run = trials.run group by trials.run"""
            )
            assert all(r["n"] == 8 * (r["last"] + 1) and r["state"] == r["last"] for r in rows)
            seen = sum(r["n"] for r in rows)
    assert seen > 0


def test_a_full_disk_is_told_in_words(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        pages = database.query("pragma page_count")[0]["page_count"]
        database.query(f"pragma max_page_count = {pages}")
        with pytest.raises(DatabaseError, match="the disk is full; free some space"):
            database.add(run, KERNEL, [measured(1e-3)] * 999, batch=0)
        assert database.trials(KERNEL.key, **HERE) == []


def test_a_limit_of_the_system_is_told_in_words(path: Path) -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9999, 9999)); "
        "from hlotune.tuning_logs.database import Database; Database(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert "DatabaseError" in done.stderr
    assert "check disk, quota and limits" in done.stderr

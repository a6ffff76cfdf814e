"""A database is one file: copies of it can be put back, whatever another file left beside it."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hlotune.tuning_logs import leftovers
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.migrations import TABLES
from tests.support.recorded import HERE, KERNEL, contents, filled, measured, start
from tests.support.tree import ROOT

BUSY_WRITER = """
import sys, time
from hlotune.tuning_logs.database import Database
from tests.support.recorded import KERNEL, measured, start
with Database(sys.argv[1]) as database:
    run = start(database)
    print("started", flush=True)
    for batch in range(1_000_000):
        database.add(run, KERNEL, [measured(1e-3, n) for n in range(8)], batch=batch)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    filled(tmp_path / "tuning.db").close()
    return tmp_path / "tuning.db"


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def everything(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with Database(path, read_only=True) as database:
        return contents(database, *TABLES)


def test_between_transactions_a_database_is_one_file(path: Path) -> None:
    with Database(path) as database, Database(path, read_only=True) as reader:
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
        assert reader.trials(KERNEL.key, **HERE)[-1] == measured(1e-3)
        assert names(path.parent) == {"tuning.db"}
    assert names(path.parent) == {"tuning.db"}


def test_a_copy_made_while_another_process_has_it_open_is_whole(path: Path, tmp_path: Path) -> None:
    with Database(path) as database:
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
        copy = Path(shutil.copy(path, tmp_path / "copy.db"))
        assert everything(copy) == contents(database, *TABLES)


@pytest.mark.parametrize("attempt", range(3))
def test_a_copy_put_back_after_a_run_was_killed_is_what_was_copied(
    attempt: int, path: Path, tmp_path: Path
) -> None:
    before = everything(path)
    copy = shutil.copy(path, tmp_path / "copy.db")
    writer = subprocess.Popen(
        [sys.executable, "-c", BUSY_WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        writer.wait(0.3 + 0.1 * attempt)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    shutil.copy(copy, path)
    assert everything(path) == before
    with Database(path) as database:
        assert check(database).problems == ()


@pytest.fixture
def killed(path: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder with a copy of a database and its journal in the middle of a transaction."""
    folder = tmp_path / "killed"
    folder.mkdir()
    shutil.copy(path, tmp_path / "before.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("pragma cache_size = 1")  # so that pages are written before the end
        writer.execute("begin immediate")
        writer.execute("pragma user_version = 4")
        writer.execute("update kernels set text = text || zeroblob(5000)")
        writer.execute("update trials set schedule = schedule || zeroblob(5000)")
        for name in ("tuning.db", "tuning.db-journal"):
            shutil.copy(tmp_path / name, folder / name)
        writer.execute("rollback")
    assert (folder / "tuning.db").read_bytes() != path.read_bytes()
    yield folder


def test_a_transaction_of_a_process_that_was_killed_is_undone(killed: Path, path: Path) -> None:
    assert leftovers.stale(killed / "tuning.db") == []
    assert everything(killed / "tuning.db") == everything(path)
    assert names(killed) == {"tuning.db"}


@pytest.mark.parametrize("of_before", [True, False])
def test_the_journal_of_another_file_ruins_no_copy(
    of_before: bool, killed: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Database(path) as later:
        later.add(start(later), KERNEL, [measured(1e-3)], batch=0)
    other = killed.parent / "other.db"
    with filled(other) as database:
        database.add(start(database), KERNEL, [measured(7e-3)] * 9, batch=0)
    copied = path if of_before else other
    expected = everything(copied)
    shutil.copy(copied, killed / "tuning.db")
    assert everything(killed / "tuning.db") == expected
    said = capsys.readouterr().err
    (aside,) = names(killed) - {"tuning.db"}
    assert aside.startswith("tuning.db-journal.") and aside.endswith(".aside")
    assert f"belongs to another file that was there before; it is left alone, as {aside}" in said
    assert said.count("\n") == 1


def logged(path: Path, folder: Path) -> Path:
    """A copy as an older version left it when it was killed: with rows in a write-ahead log."""
    folder.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("pragma journal_mode = wal")
        for row in range(40):
            writer.execute("insert into toolchains values (?, ?)", (f"{row}", "x" * 2000))
        for name in ("tuning.db", "tuning.db-wal"):
            shutil.copy(path.with_name(name), folder / name)
    return folder / "tuning.db"


def test_the_log_of_an_older_version_that_was_killed_is_taken_in(
    path: Path, tmp_path: Path
) -> None:
    killed = logged(path, tmp_path / "killed")
    assert len(everything(killed)["toolchains"]) == 41
    with Database(killed) as database:
        assert len(database.query("select * from toolchains")) == 41
        assert database.sql.journal_mode == "delete"
    assert names(killed.parent) == {"tuning.db"}


def test_a_log_beside_a_file_that_has_none_is_left_alone(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = everything(path)
    fresh = shutil.copy(path, tmp_path / "fresh.db")
    killed = logged(path, tmp_path / "killed")
    shutil.copy(fresh, killed)
    killed.with_name("tuning.db-shm").touch()
    assert everything(killed) == expected
    (aside,) = names(killed.parent) - {"tuning.db"}
    assert aside.startswith("tuning.db-wal.") and aside in capsys.readouterr().err


def test_a_log_that_does_not_fit_an_older_copy_is_left_alone(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as older:
        older.execute("pragma journal_mode = wal")
    copy = Path(shutil.copy(path, tmp_path / "older.db"))
    expected = everything(copy)
    with Database(path) as database:
        for batch in range(20):
            trials = [measured(1e-3, n) for n in range(20)]
            database.add(start(database), KERNEL, trials, batch=batch)
    killed = logged(path, tmp_path / "killed")
    shutil.copy(copy, killed)
    assert everything(killed) == expected
    with Database(killed) as database:
        assert check(database).problems == ()


def test_a_log_in_use_by_another_process_is_not_looked_into(path: Path) -> None:
    with closing(sqlite3.connect(path)) as ours:
        ours.execute("pragma journal_mode = wal")
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('insert into toolchains values (1, 2)'); print('ready', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    other.stdout.readline()
    assert leftovers._is_in_use(path)
    with Database(path) as database:  # and it is written as it is kept
        assert database.sql.journal_mode == "wal"
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
    other.communicate("\n")
    with Database(path) as database:
        assert database.sql.journal_mode == "delete"
        assert len(database.query("select * from toolchains")) == 2
    assert names(path.parent) == {"tuning.db"}

"""Opening a database file, and SQLite's errors in words."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path

import sqlite_utils

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.migrations import APPLICATION_ID, MIGRATIONS, migrate, version

BUSY_S = 30.0
"""How long a process waits for another one's transaction."""

REASONS = {
    "SQLITE_NOTADB": "expected a tuning database, got a file of another kind; name another path",
    "SQLITE_CORRUPT": "the file is damaged; restore a copy, or save what `tune db export` can read",
    "SQLITE_BUSY": f"another process has kept it locked for {BUSY_S:.0f} s; stop that process",
    "SQLITE_READONLY": "expected to write, but file or folder is read-only; copy it elsewhere",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and the rights of file and folder",
    "SQLITE_IOERR": "the system does not read or write it; check disk, quota and limits",
    "SQLITE_FULL": "the disk is full; free some space and run again",
}


@contextmanager
def errors_in_words(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system raise into one DatabaseError that says what to do."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = next((r for code, r in REASONS.items() if name.startswith(code)), None)
        raise DatabaseError(f"database {path}: {reason or 'SQLite refused'} ({error})") from error


def connect(path: Path, *, create: bool) -> sqlite_utils.Database:
    """Opens a file in WAL mode at the newest version; makes it, and its folders, where `create`
    says so.
    """
    with _system_in_words(path):
        _check_place(path, create)
        with _folders(path) if create else nullcontext():
            return _opened(path)


@contextmanager
def _system_in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except DatabaseError:
        raise
    except OSError as error:
        raise DatabaseError(
            f"database {path}: it or its folder cannot be made or looked at ({error.strerror}); "
            "name another path"
        ) from error


def _check_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise DatabaseError(
            f"database {path}: expected a file, got a folder; "
            f"name a file in it, such as {path / 'tuning.db'}"
        )
    if path.exists() and not path.is_file():
        raise DatabaseError(
            f"database {path}: expected a file, got a device or a pipe; name another path"
        )
    if not create and not path.exists():
        raise DatabaseError(
            f"database {path}: expected a file, found none; "
            "tune something first, or name another path"
        )


@contextmanager
def _folders(path: Path) -> Iterator[None]:
    """Makes those on the way to a file, and takes them away again where it cannot be made."""
    missing = list(takewhile(lambda folder: not folder.exists(), path.parents))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # it was not made, or another process has put something there
                folder.rmdir()
        raise


def _opened(path: Path) -> sqlite_utils.Database:
    with errors_in_words(path):
        # No implicit transactions: each write says BEGIN IMMEDIATE, so that waiting for the lock
        # happens there alone.
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            db = sqlite_utils.Database(connection, execute_plugins=False)
            _check_ours(db, path)
            _set_up(db)
            migrate(db)
        except BaseException:
            connection.close()
            raise
        return db


def _check_ours(db: sqlite_utils.Database, path: Path) -> None:
    """Raises before anything is written to a file of another program, or of a newer hlotune."""
    # Tables first: while another process makes them, they and the mark appear together.
    tables = db.table_names()
    if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DatabaseError(
            f"database {path}: expected a tuning database, got another program's SQLite file; "
            "name another path"
        )
    if version(db) > len(MIGRATIONS):
        raise DatabaseError(
            f"database {path}: expected version {len(MIGRATIONS)} or older, got version "
            f"{version(db)}, written by a newer hlotune; upgrade hlotune, or name another path"
        )


def _set_up(db: sqlite_utils.Database) -> None:
    _enter_wal(db)
    # FULL: a transaction that has returned survives a power cut too; one fsync a batch of trials
    # costs nothing.
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")


def _enter_wal(db: sqlite_utils.Database) -> None:
    """SQLite does not wait for the lock when it changes the journal, so several first openers
    meet here.
    """
    deadline = time.monotonic() + BUSY_S
    while db.journal_mode != "wal":
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)

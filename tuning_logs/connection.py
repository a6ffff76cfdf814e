"""Opening a database file, and SQLite's errors in words.

Databases are kept with a rollback journal: between two transactions a database is one file, which
can be copied, moved and put back as any other.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from urllib.parse import quote

import sqlite_utils

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.leftovers import set_aside_stale, stale
from hlotune.tuning_logs.migrations import APPLICATION_ID, MIGRATIONS, TABLES, migrate, version

BUSY_S = 30.0
"""How long a process waits for another one's transaction."""

REASONS = {
    "SQLITE_NOTADB": "expected a tuning database, got a file of another kind; name another path",
    "SQLITE_CORRUPT": "the file is damaged; restore a copy, or save what `tune db export` can read",
    "SQLITE_BUSY": f"another process has kept it locked for {BUSY_S:.0f} s; stop that process",
    "SQLITE_READONLY_ROLLBACK": "a process was stopped while it wrote, and file or folder is "
    "read-only; copy it, with the -journal beside it, to where it can be written",
    "SQLITE_READONLY": "expected to write, but file or folder is read-only; copy it elsewhere",
    "SQLITE_CANTOPEN": "cannot be opened; check the path and the rights of file and folder",
    "SQLITE_IOERR": "the system does not read or write it; check disk, quota and limits",
    "SQLITE_FULL": "the disk is full; free some space and run again",
}
NO_PLACE = {"SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY"}
"""What SQLite says where it has no place for the files that it needs beside a database."""


@contextmanager
def errors_in_words(path: Path) -> Iterator[None]:
    """Turns what SQLite and the file system raise into one DatabaseError that says what to do."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = next((r for code, r in REASONS.items() if name.startswith(code)), None)
        raise DatabaseError(f"database {path}: {reason or 'SQLite refused'} ({error})") from error
    except UnicodeDecodeError as error:  # SQLite names the damaged part of a schema
        raise DatabaseError(f"database {path}: {REASONS['SQLITE_CORRUPT']} ({error})") from error


def connect(path: Path, *, create: bool) -> sqlite_utils.Database:
    """Opens a file for writing, at the newest version; makes it, and its folders, where `create`
    says so.

    Raises DatabaseError.
    """
    with _system_in_words(path):
        _check_place(path, create)
        with _folders(path) if create else nullcontext():
            if path.exists():
                set_aside_stale(path)
            return _opened_to_write(path, create=create)


def connect_to_read(path: Path) -> sqlite_utils.Database:
    """Opens a file that nothing is written to, also where nothing can be.

    What is read of a file of an older version is a copy that has been brought to the newest one.
    Raises DatabaseError, also where the file is empty.
    """
    with _system_in_words(path):
        _check_place(path, create=False)
        return _opened_to_read(path, _ways_now(path))


def _ways_now(path: Path) -> tuple[str, ...]:
    effective = os.access in os.supports_effective_ids
    places = path, path.parent
    may_write = all(os.access(place, os.W_OK, effective_ids=effective) for place in places)
    if may_write:
        set_aside_stale(path)
    wal = path.with_name(f"{path.name}-wal")
    has_wal = wal.exists() and wal.stat().st_size > 0
    return ways_to_read(may_write=may_write, has_wal=has_wal, is_stale=bool(stale(path)))


def ways_to_read(*, may_write: bool, has_wal: bool, is_stale: bool) -> tuple[str, ...]:
    """Options of SQLite for a file that is to be read; the next where the first cannot open it.

    Args:
        may_write: whether this process may write to the file and its folder.
        has_wal: whether there is a write-ahead log that is not empty.
        is_stale: whether there is a log or a journal that belongs to another file.
    """
    if may_write:
        return ("mode=rw",)  # SQLite tidies up after a process that was killed
    if is_stale:
        return ("immutable=1",)
    # A file that is kept with a write-ahead log needs another beside it, unless nobody changes it.
    return ("mode=ro",) if has_wal else ("mode=ro", "immutable=1")


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
    if not create and path.stat().st_size == 0:
        raise _nothing_in(path)


def _nothing_in(path: Path) -> DatabaseError:
    return DatabaseError(
        f"database {path}: expected a tuning database, got an empty file; "
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


def _opened_to_write(path: Path, *, create: bool) -> sqlite_utils.Database:
    with _connected(path, "mode=rwc" if create else "mode=rw") as db:
        _check_ours(db, path, may_be_empty=create)
        _set_up(db)
        migrate(db)
        return db


def _opened_to_read(path: Path, ways: tuple[str, ...]) -> sqlite_utils.Database:
    try:
        with _connected(path, ways[0]) as db:
            _check_ours(db, path, may_be_empty=False)
            db.execute("PRAGMA query_only = ON")
            return db if version(db) == len(MIGRATIONS) else _brought_up(db)
    except DatabaseError as error:
        if not ways[1:] or getattr(error.__cause__, "sqlite_errorname", "") not in NO_PLACE:
            raise
    return _opened_to_read(path, ways[1:])


def _brought_up(db: sqlite_utils.Database) -> sqlite_utils.Database:
    """A copy at the newest version, in a file of its own that goes with the connection."""
    copy = sqlite3.connect("", isolation_level=None)
    with closing(db.conn):
        db.conn.backup(copy)
    copied = sqlite_utils.Database(copy, execute_plugins=False)
    migrate(copied)
    copied.execute("PRAGMA query_only = ON")
    return copied


@contextmanager
def _connected(path: Path, way: str) -> Iterator[sqlite_utils.Database]:
    """A connection that is closed where the block raises."""
    with errors_in_words(path):
        # No implicit transactions: each write says BEGIN IMMEDIATE, so that waiting for the lock
        # happens there alone.
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(path.absolute()))}?{way}",
            uri=True,
            timeout=BUSY_S,
            isolation_level=None,
        )
        # Bytes that are no UTF-8 are shown, and no reason to read nothing.
        connection.text_factory = lambda text: text.decode(errors="backslashreplace")
        try:
            yield sqlite_utils.Database(connection, execute_plugins=False)
        except BaseException:
            connection.close()
            raise


def _check_ours(db: sqlite_utils.Database, path: Path, *, may_be_empty: bool) -> None:
    """Raises before anything is written to a file of another program, or of a newer hlotune."""
    # Tables first: while another process makes them, they and the mark appear together.
    tables = db.table_names()
    if not tables and not may_be_empty:
        raise _nothing_in(path)
    if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise DatabaseError(
            f"database {path}: expected a tuning database, got another program's SQLite file; "
            "name another path"
        )
    if foreign := _foreign(db):
        raise DatabaseError(
            f"database {path}: expected tables that are read and written alone, got the {foreign}, "
            "which hlotune does not make; drop it, or name another path"
        )
    if version(db) < 0:
        raise DatabaseError(
            f"database {path}: expected version 0 to {len(MIGRATIONS)}, got {version(db)}, which "
            "no hlotune writes; restore a copy, or name another path"
        )
    if version(db) > len(MIGRATIONS):
        raise DatabaseError(
            f"database {path}: expected version {len(MIGRATIONS)} or older, got version "
            f"{version(db)}, written by a newer hlotune; upgrade hlotune, or name another path"
        )


def _foreign(db: sqlite_utils.Database) -> str:
    """What may change what is written, or never end being read; views of other names do no harm."""
    made = db.execute("select type, name from sqlite_master where type in ('trigger', 'view')")
    found = [f"{kind} {name}" for kind, name in made if kind == "trigger" or name in TABLES]
    return found[0] if found else ""


def _set_up(db: sqlite_utils.Database) -> None:
    _leave_wal(db)
    # EXTRA: a transaction that has returned survives a power cut too; a few fsyncs a batch of
    # trials cost nothing.
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("PRAGMA foreign_keys = ON")


def _leave_wal(db: sqlite_utils.Database) -> None:
    """Older versions kept a write-ahead log; it stays while another process has the file open."""
    with suppress(sqlite3.OperationalError):
        if db.journal_mode != "delete":
            db.execute("PRAGMA journal_mode = DELETE")

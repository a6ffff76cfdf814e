"""Files that a stopped process left beside a database, and whether they belong to it.

A process that is killed in a transaction leaves a `-journal`, from which SQLite restores the file
at the next opening.  Databases of older versions were kept with a write-ahead log; such a process
leaves a `-wal`, which SQLite adds to the file.  It does so with whatever file has the name by then:
a copy put in the place of a database would be ruined by what another one left there.  What does not
belong is therefore renamed before SQLite sees it.
"""

import fcntl
import os
import secrets
import shutil
import sqlite3
import struct
import sys
import tempfile
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_JOURNAL_HEADER = struct.Struct(">8sIIIII")
"""Magic, records, nonce, pages of the database before, bytes of a sector, bytes of a page."""
_COUNTER = slice(24, 28)
"""The counter of page 1: each transaction that goes through a journal adds one to it."""
_LOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux."""
_SHM_IN_USE = 128
"""The byte of a `-shm` that each process with the database open keeps locked."""


def set_aside_stale(path: Path) -> None:
    """Renames a `-journal` or `-wal` that belongs to another file, and says so on stderr.

    Raises OSError where the file system does not let it.
    """
    for left in stale(path):
        aside = left.with_name(f"{left.name}.{secrets.token_hex(4)}.aside")
        left.rename(aside)
        print(
            f"tune: database {path}: {left.name} belongs to another file that was there before; "
            f"it is left alone, as {aside.name}",
            file=sys.stderr,
        )
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)


def stale(path: Path) -> list[Path]:
    """The companions that are there, are not empty, and do not belong to the file."""
    found = []
    for ending, belongs in (("-journal", _journal_belongs), ("-wal", _wal_belongs)):
        left = path.with_name(path.name + ending)
        with suppress(FileNotFoundError):  # a transaction may end meanwhile
            if left.stat().st_size and path.stat().st_size and not belongs(path, left):
                found.append(left)
    return found


def _journal_belongs(path: Path, journal: Path) -> bool:
    """Whether page 1 of the file is the one that the journal remembers, or its successor.

    Also where the journal does not say: one that was not written to its end has changed nothing.
    """
    before = _first_page_before(journal)
    if before is None:
        return True
    now = _first_page(path, len(before))
    counts = [int.from_bytes(page[_COUNTER]) for page in (before, now)]
    return now == before or counts[1] == counts[0] + 1


def _first_page_before(journal: Path) -> bytes | None:
    """Page 1 as it was before the transaction; None where the journal does not have it."""
    end = journal.stat().st_size
    with journal.open("rb") as file:
        start = 0
        while start + _JOURNAL_HEADER.size <= end:
            file.seek(start)
            header = file.read(_JOURNAL_HEADER.size)
            magic, records, _, _, sector, page = _JOURNAL_HEADER.unpack(header)
            if magic != _JOURNAL_MAGIC or not sector or not page:
                return None
            for at in range(start + sector, start + sector + records * (page + 8), page + 8):
                file.seek(at)
                number, content = file.read(4), file.read(page)
                if len(content) < page:
                    return None
                if int.from_bytes(number) == 1:
                    return content
            start += -(-(sector + records * (page + 8)) // sector) * sector
    return None


def _wal_belongs(path: Path, wal: Path) -> bool:
    """Whether the file is kept with a write-ahead log, and is sound with this one.

    Nothing in a log says to which file it belongs, so a copy of both is tried.
    """
    if _first_page(path, 20)[18] == 1:
        return False  # the file is kept with a journal, as all of ours are now
    return _is_in_use(path) or _is_sound_with(path, wal)


def _is_in_use(path: Path) -> bool:
    """Whether another process has the file open with its write-ahead log."""
    shared_memory = path.with_name(f"{path.name}-shm")
    if not shared_memory.exists():
        return False
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _SHM_IN_USE, 1, 0)
    answer = fcntl.fcntl(_kept_open(shared_memory), fcntl.F_GETLK, asked)
    return bool(_LOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _is_sound_with(path: Path, wal: Path) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        with open(_kept_open(path), "rb", closefd=False) as file, copy.open("wb") as out:
            file.seek(0)
            shutil.copyfileobj(file, out)
        shutil.copyfile(wal, f"{copy}-wal")
        try:
            with closing(sqlite3.connect(copy)) as connection:
                found = connection.execute("pragma integrity_check(1)").fetchone()
        except sqlite3.DatabaseError:
            return False
        return bool(found == ("ok",))


def _first_page(path: Path, size: int) -> bytes:
    return os.pread(_kept_open(path), size, 0)


def _kept_open(path: Path) -> int:
    """A descriptor that stays open: closing one would release all locks that this process has on
    the file, those of SQLite too.
    """
    status = path.stat()
    return _descriptor(path, status.st_dev, status.st_ino)


@cache
def _descriptor(path: Path, device: int, inode: int) -> int:
    return os.open(path, os.O_RDONLY)

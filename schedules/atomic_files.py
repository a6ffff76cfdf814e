"""Files that appear whole or not at all: a reader never meets half of one."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DATABASE_MAGIC = b"SQLite format 3\0"
"""Every SQLite database that is not empty begins with these bytes."""
COMPANIONS = ("-journal", "-wal", "-shm")
"""SQLite keeps files beside a database under its name and one of these endings."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to; the file appears under its name when the block ends without error.

    The file that is written has a name of its own beside the final one, which nobody can foresee,
    so that no link is waiting there.  A file that is replaced keeps its mode, and its owner where
    the system allows that.  Links in `path` itself are followed.  A device or a pipe is written
    directly: a file in its place would take it away from everybody.

    Raises OSError where the file cannot be put there, and FileExistsError where a database is in
    its place, or a file that SQLite keeps beside one.
    """
    if path.exists() and not path.is_file():  # /dev/stdout may lead to a name that is no path
        yield path
        return
    path = Path(os.path.realpath(path))
    require_no_database(path)
    part = _created_beside(path)
    try:
        yield part
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def require_no_database(path: Path) -> None:
    """Raises FileExistsError where a file written to `path` would take a database away."""
    if database_of(path) is not None:
        raise FileExistsError(errno.EEXIST, "a database is there, and would be lost", str(path))


def database_of(path: Path) -> Path | None:
    """The database that the file is, or belongs to; None where there is none.  Follows links.

    Raises OSError where a file cannot be read.
    """
    path = Path(os.path.realpath(path))
    names = [path.name.removesuffix(end) for end in ("", *COMPANIONS) if path.name.endswith(end)]
    candidates = [path.with_name(name) for name in names if name]
    return next((candidate for candidate in candidates if _is_database(candidate)), None)


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(DATABASE_MAGIC)) == DATABASE_MAGIC


def _created_beside(path: Path) -> Path:
    """An empty file with the mode that the one at `path` has, or a new one would have."""
    ending = path.suffix if len(path.suffix) < 32 else ""  # writers tell formats apart by it
    part = path.with_name(f".{secrets.token_hex(8)}.part{ending}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    before = path.stat() if path.exists() else None
    file = os.open(part, flags, 0o666 if before is None else before.st_mode & 0o777)
    try:
        if before is not None:
            with suppress(OSError):
                os.fchown(file, before.st_uid, before.st_gid)
            os.fchmod(file, before.st_mode & 0o777)
    finally:
        os.close(file)
    return part

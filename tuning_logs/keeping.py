"""The records of a run that goes on, kept apart: they outlive the file that they were written to.

Somebody may remove a database, or put another one in its place, while a run of hours writes to it.
The run then goes on in a file of its own beside it, which has all that this run recorded.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

import sqlite_utils

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.migrations import TABLES, migrate
from hlotune.tuning_logs.rows import Row

OF_RUN = {
    "kernels": """key in (
        select kernel from trials where run = :run union select kernel from finals where run = :run
        union select kernel from states where run = :run union select kernel from sites
        where program = (select program from runs where id = :run))""",
    "targets": "fingerprint = (select target from runs where id = :run)",
    "toolchains": "key = (select toolchain from runs where id = :run)",
    "programs": "key = (select program from runs where id = :run)",
    "sites": "program = (select program from runs where id = :run)",
    "runs": "id = :run",
    **dict.fromkeys(("trials", "states", "finals"), "run = :run"),
}
"""Which rows of each table belong to a run."""

RUINED = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR", "SQLITE_READONLY_DBMOVED")
"""What SQLite says of a file that is no database any more, or not the same one."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The records of a run are in another file from now on."""

    path: Path
    """Where they were until now."""
    kept: Path
    """Where they are now."""
    why: str
    """What became of the first: `removed` or `replaced`."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What a run has recorded, in a database that belongs to this process alone."""

    run: str
    tell: Callable[[Moved], None]
    """Is called where the records have moved."""
    mirror: sqlite_utils.Database

    @classmethod
    def of(cls, source: sqlite_utils.Database, run: str, tell: Callable[[Moved], None]) -> Self:
        """Begins with what the source has of the run."""
        mirror = sqlite_utils.Database(
            sqlite3.connect("", isolation_level=None), execute_plugins=False
        )
        migrate(mirror)
        kept = cls(run, tell, mirror)
        kept.take(rows_of(source, run))
        return kept

    def take(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Adds rows, `(table, row)`, or renews them."""
        with self.mirror.atomic():
            for table, row in rows:
                self.mirror.table(table).upsert(row, pk=self.mirror.table(table).pks)

    def is_in(self, database: sqlite_utils.Database) -> bool:
        """Whether a database has the run and at least as many trials of it."""
        found, own = (
            db.execute("select count(*) from trials where run = ?", [self.run]).fetchone()[0]
            for db in (database, self.mirror)
        )
        known = database.execute("select 1 from runs where id = ?", [self.run]).fetchone()
        return known is not None and found >= own

    def written_beside(self, path: Path) -> Path:
        """Writes all to a new file beside `path`, or where temporary files go if that cannot be.

        Raises DatabaseError.
        """
        problem: OSError | sqlite3.Error | None = None
        for folder in (path.parent, Path(tempfile.gettempdir())):
            try:
                return self._written(folder, f"{path.stem}.run-{self.run[:8]}", path.suffix)
            except (OSError, sqlite3.Error) as error:
                problem = error
        raise DatabaseError(
            f"database {path}: it is gone, and the records of run {self.run} can be kept neither "
            f"beside it nor in {tempfile.gettempdir()} ({problem}); free some space and run again"
        ) from problem

    def _written(self, folder: Path, stem: str, suffix: str) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = _new(folder / f"{stem}{f'-{n}' if n else ''}{suffix}" for n in count())
        with closing(sqlite3.connect(path)) as file:
            self.mirror.conn.backup(file)
        return path

    def close(self) -> None:
        self.mirror.close()


def rows_of(database: sqlite_utils.Database, run: str) -> Iterator[tuple[str, Row]]:
    """All that a database has of a run, as `(table, row)`, parents before children."""
    for table in TABLES:
        found = database.query(f"select * from {table} where {OF_RUN[table]}", {"run": run})
        yield from ((table, row) for row in found)


def is_ruined(error: sqlite3.DatabaseError) -> bool:
    """Whether it says that the file is no database any more, or another one."""
    return getattr(error, "sqlite_errorname", "") in RUINED


def identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from every other that is there at the same time; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _new(paths: Iterable[Path]) -> Path:
    """The first that is not there yet, made as an empty file."""
    for path in paths:
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there are endless paths")

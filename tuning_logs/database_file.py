"""A database as an open file: its transactions, and what happens where the file goes away."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import sqlite_utils

from hlotune.schedules.errors import DatabaseError, HlotuneError
from hlotune.tuning_logs import soundness
from hlotune.tuning_logs.connection import connect, connect_to_read, errors_in_words
from hlotune.tuning_logs.keeping import KeptRun, Moved, identity, is_ruined
from hlotune.tuning_logs.rows import Row
from hlotune.tuning_logs.soundness import UNUSABLE


class DatabaseFile:
    """One open file.  Belongs to the thread that opened it; others open their own.

    Raises DatabaseError, here and in every method, where the file cannot be opened, read or
    written.
    """

    def __init__(self, path: str | Path, *, create: bool = True, read_only: bool = False) -> None:
        """`create` makes a file that is not there; `read_only` opens one that cannot be written,
        too, and writes nothing.
        """
        self.path = Path(path)
        self.sql: sqlite_utils.Database = (
            connect_to_read(self.path) if read_only else connect(self.path, create=create)
        )
        self.unreadable = 0
        """Rows skipped since opening, because what they hold does not parse (any more)."""
        self._file = identity(self.path)
        self._kept: KeptRun | None = None
        self._written: list[tuple[str, Row]] = []
        """By the transaction that goes on, for what is kept."""

    def close(self) -> None:
        self.sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raises DatabaseError in the place of what a row that cannot be used made the block
        raise."""
        try:
            if isinstance(error, UNUSABLE) and not isinstance(error, HlotuneError):
                self._blame_rows(error)
        finally:
            self.close()

    def _blame_rows(self, error: BaseException) -> None:
        problems = soundness.check(self.query).problems
        if problems:
            more = f" and {len(problems) - 1} more" if problems[1:] else ""
            raise DatabaseError(
                f"database {self.path}: expected rows that can be used, got {problems[0]}{more}; "
                "`tune db check` lists them: restore a copy, or save what `tune db export` can read"
            ) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite_utils.Database]:
        """One transaction; it takes the write lock at its start, and any exception undoes it."""
        with errors_in_words(self.path):
            self._written = []
            self._begin()
            try:
                yield self.sql
                self.sql.commit()
            except BaseException:
                self.sql.rollback()
                raise
            if self._kept:
                self._kept.take(self._written)

    def query(self, sql: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        with errors_in_words(self.path):
            try:
                return list(self.sql.query(sql, dict(values or {})))
            except sqlite3.DatabaseError as error:
                if self._kept is None or not is_ruined(error) or self.sql.conn.in_transaction:
                    raise
            self._move("replaced")
            return list(self.sql.query(sql, dict(values or {})))

    @contextmanager
    def keeping(self, run: str, tell: Callable[[Moved], None]) -> Iterator[None]:
        """Meanwhile the records of a run survive that the file is removed or replaced.

        That is noticed by the next transaction, or a read that fails.  From then on `path` is a new
        file beside the old one, with all that the run has recorded; `tell` is called with both.
        """
        with errors_in_words(self.path):
            self._kept = KeptRun.of(self.sql, run, tell)
        try:
            yield
        finally:
            self._kept.close()
            self._kept = None

    def _begin(self) -> None:
        """Takes the write lock, in the file that has the database's name."""
        try:
            self.sql.execute("BEGIN IMMEDIATE")
            lost = self._lost()
        except sqlite3.DatabaseError as error:
            if self._kept is None or not is_ruined(error):
                raise
            lost = "replaced"
        if lost:
            if self.sql.conn.in_transaction:
                self.sql.rollback()
            self._move(lost)
            self.sql.execute("BEGIN IMMEDIATE")

    def _lost(self) -> str:
        """What became of the file since it was opened; nothing where it is still there."""
        now = identity(self.path)
        if now is None:
            return "removed"
        same = now == self._file and (self._kept is None or self._kept.is_in(self.sql))
        return "" if same else "replaced"

    def _move(self, why: str) -> None:
        """Goes on in a file with what is kept.  Raises DatabaseError where nothing is."""
        if self._kept is None:
            raise DatabaseError(
                f"database {self.path}: it was {why} while this command wrote to it, and what the "
                "command had written is gone with it; run the command again"
            )
        moved = Moved(self.path, self._kept.written_beside(self.path), why)
        self.sql.close()
        self.path = moved.kept
        self.sql, self._file = connect(self.path, create=False), identity(self.path)
        self._kept.tell(moved)

    def _put(self, table: str, row: Row) -> None:
        """Inserts a row, or fills in and renews what it knows of one that is there."""
        self._replace(table, {k: v for k, v in row.items() if v is not None})

    def _replace(self, table: str, row: Row) -> None:
        """Inserts a row, or puts its values into one that is there."""
        self.sql.table(table).upsert(row, pk=self.sql.table(table).pks)
        self._written.append((table, row))

    def _insert(self, table: str, new: list[Row]) -> None:
        self.sql.table(table).insert_all(new)
        self._written += [(table, row) for row in new]

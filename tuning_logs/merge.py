"""Taking in rows from elsewhere: another database, or records.  Doing it twice changes nothing."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.plausible import recomputed, require_plausible
from hlotune.tuning_logs.rows import Row

CHUNK = 500
"""Rows a transaction: short enough that other writers never wait long."""


def merge(database: Database, other: str | Path) -> dict[str, int]:
    """Adds all that another database knows; returns the number of new rows of each table.

    Stopped in the middle, it has added some of the rows, and can be run again.
    """
    with Database(other, read_only=True) as source:
        return {table: absorb_all(database, table, _checked(source, table)) for table in TABLES}


def _checked(source: Database, table: str) -> Iterator[Row]:
    for row in _rows(source, table):
        try:
            require_plausible(table, row)
            yield recomputed(row) if table == "finals" else row
        except (TypeError, ValueError) as error:
            raise DatabaseError(
                f"database {source.path}: expected rows that can be true, got one of {table} of "
                f"which they cannot ({error}); `tune db check` lists such rows, and `tune db "
                "export` with `import` takes all others"
            ) from error


def absorb_all(database: Database, table: str, incoming: Iterable[Row]) -> int:
    """Adds rows in transactions of `CHUNK`; returns how many were new."""
    rows, added = iter(incoming), 0
    while chunk := list(islice(rows, CHUNK)):
        with database.writing():
            added += absorb(database, table, chunk)
    return added


def absorb(database: Database, table: str, incoming: Sequence[Row]) -> int:
    """Inside a transaction: adds new rows, fills the gaps of known ones; returns how many were new.

    What is known stays, but for what a run says anew: of the state of a searcher the later batch is
    kept, and of a final what was decided later, each as a whole.
    """
    target = database.sql.table(table)
    keys = target.pks
    new: dict[tuple[str, ...], Row] = {}
    for row in incoming:
        key = tuple(row[k] for k in keys)
        where = " and ".join(f"{k} = ?" for k in keys)
        known = new.get(key) or next(iter(target.rows_where(where, list(key))), None)
        if known is None or key in new:
            new[key] = row if known is None else _joined(table, known, row)
        elif (joined := _joined(table, known, row)) != known:
            target.upsert(joined, pk=keys)
    target.insert_all(new.values())
    return len(new)


def _joined(table: str, ours: Row, theirs: Row) -> Row:
    if table == "states":
        return max(ours, theirs, key=lambda row: int(row["batch"]))
    if table == "finals" and ours["decided"] != theirs["decided"]:
        return max(ours, theirs, key=lambda row: str(row["decided"]))
    return {column: theirs[column] if ours[column] is None else ours[column] for column in ours}


def _rows(source: Database, table: str) -> Iterator[Row]:
    """All rows, by pages, so that no read lock is held while the other file is written."""
    last = 0
    while page := source.query(
        f"select rowid as place, * from {table} where rowid > :last order by rowid limit {CHUNK}",
        {"last": last},
    ):
        last = page[-1]["place"]
        for row in page:
            del row["place"]
            yield row

"""Opening records wherever they lie: in a database, or as JSON lines."""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.default_path import database_path
from hlotune.tuning_logs.records import import_records, no_records

LINES = (".jsonl", ".jsonl.gz")


def chosen(
    database: Database | str | Path | None, *, create: bool
) -> AbstractContextManager[Database]:
    """The database that a caller names, or the one where nobody names any; an open one stays open.

    One that is not to be made is opened to be read alone.  Raises DatabaseError where the file
    cannot be opened, or is not there and is not to be made.
    """
    if isinstance(database, Database):
        return nullcontext(database)
    return Database(database_path(database), create=create, read_only=not create)


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """A database, or one made for the while of the records in a file of JSON lines.

    Raises DatabaseError where there is no such file, or one that holds no records.
    """
    if not path.name.endswith(LINES):
        with Database(path, read_only=True) as database:
            yield database
        return
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "records.db") as database:
        taken = import_records(database, path)
        if not taken.records:
            raise no_records(path, taken)
        yield database

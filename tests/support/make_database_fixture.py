"""Writes the newest version of the schema, with some rows, as text.

`python -m tests.support.make_database_fixture` is run once for each version, before the next
migration is written, and never again for an older one: the file is what users of that version have
on disk.
"""

import tempfile
from pathlib import Path

from hlotune.tuning_logs.connection import connect
from hlotune.tuning_logs.migrations import APPLICATION_ID, MIGRATIONS
from tests.support.recorded import filled

FIXTURES = Path(__file__).parents[1] / "fixtures"


def main() -> None:
    newest = len(MIGRATIONS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuning.db"
        filled(path).close()
        db = connect(path, create=False)
        statements = [
            f"PRAGMA application_id = {APPLICATION_ID};",
            *db.iterdump(),
            f"PRAGMA user_version = {newest};",
        ]
        db.close()
    (FIXTURES / f"database_v{newest}.sql").write_text("\n".join(statements) + "\n")


if __name__ == "__main__":
    main()

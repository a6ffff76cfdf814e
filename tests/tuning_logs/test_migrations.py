"""Files of every version of the schema open, and end up with the schema that a new file has."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlite_utils

from hlotune.hlo.kernel import Kernel
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.maintenance import check
from hlotune.tuning_logs.migrations import MIGRATIONS, TABLES, migrate, version
from tests.support.make_database_fixture import FIXTURES
from tests.support.recorded import HERE, KERNEL, measured, schedule, start

VERSIONS = range(1, len(MIGRATIONS) + 1)


def old_file(version: int, path: Path) -> Path:
    db = sqlite3.connect(path)
    db.executescript((FIXTURES / f"database_v{version}.sql").read_text())
    db.close()
    return path


@pytest.mark.parametrize("number", VERSIONS)
def test_an_old_file_opens_and_tells_what_it_knew(number: int, tmp_path: Path) -> None:
    with Database(old_file(number, tmp_path / "old.db")) as database:
        assert version(database.sql) == len(MIGRATIONS)
        assert check(database).problems == ()
        times = [t.time_s for t in database.trials(KERNEL.key, **HERE)]
        assert times == [2e-3, 1e-3, None, 1.5e-3]
        assert decision(database, KERNEL.key, **HERE).schedule == schedule(1)
        run = database.query("select id from runs")[0]["id"]
        assert database.checkpoint(run, KERNEL.key) == (1, b"after batch 1")


@pytest.mark.parametrize("number", VERSIONS)
def test_an_old_file_can_be_written(number: int, tmp_path: Path) -> None:
    with Database(old_file(number, tmp_path / "old.db")) as database:
        database.add(start(database), KERNEL, [measured(5e-4, 5)], batch=0)
        assert database.trials(KERNEL.key, **HERE)[-1] == measured(5e-4, 5)


@pytest.mark.parametrize("number", VERSIONS)
def test_failures_of_an_old_file_were_judged_as_their_run_was(number: int, tmp_path: Path) -> None:
    with Database(old_file(number, tmp_path / "old.db")) as database:
        judged = database.query("select numerics from trials where failure_kind is not null")
        assert [row["numerics"] for row in judged] == ["standard"] * 2


@pytest.mark.parametrize("number", VERSIONS)
def test_kernels_of_an_old_file_have_the_families_of_today(number: int, tmp_path: Path) -> None:
    with Database(old_file(number, tmp_path / "old.db")) as database:
        rows = database.query("select text, family from kernels")
    assert rows
    assert [row["family"] for row in rows] == [Kernel(row["text"]).family for row in rows]


@pytest.mark.parametrize("number", VERSIONS)
def test_trials_of_an_old_file_have_no_predictions(number: int, tmp_path: Path) -> None:
    with Database(old_file(number, tmp_path / "old.db")) as database:
        rows = database.query("select predicted from trials where run = (select id from runs)")
    known = [row["predicted"] for row in rows if row["predicted"] is not None]
    assert known == ([] if number < 7 else [0.75, 0.5])


def test_files_before_the_sixth_version_had_other_families(tmp_path: Path) -> None:
    before, after = (
        (FIXTURES / f"database_v{number}.sql").read_text() for number in (5, len(MIGRATIONS))
    )
    assert KERNEL.family in after
    assert KERNEL.family not in before


@pytest.mark.parametrize("number", VERSIONS)
def test_an_old_file_gets_the_schema_of_a_new_one(number: int, tmp_path: Path) -> None:
    with (
        Database(old_file(number, tmp_path / "old.db")) as old,
        Database(tmp_path / "new.db") as new,
    ):
        assert sorted(old.sql.schema.split(";\n")) == sorted(new.sql.schema.split(";\n"))


def test_every_table_is_listed_after_the_tables_that_it_refers_to(tmp_path: Path) -> None:
    with Database(tmp_path / "new.db") as database:
        assert sorted(TABLES) == sorted(database.sql.table_names())
        for place, name in enumerate(TABLES):
            parents = {key.other_table for key in database.sql.table(name).foreign_keys}
            assert parents <= set(TABLES[:place])


def first(db: sqlite_utils.Database) -> None:
    db.table("a").create({"x": int})


def second(db: sqlite_utils.Database) -> None:
    db.table("a").add_column("y", int)


def broken(db: sqlite_utils.Database) -> None:
    db.table("half").create({"x": int})
    raise RuntimeError("stop")


@pytest.fixture
def db() -> Iterator[sqlite_utils.Database]:
    opened = sqlite_utils.Database(memory=True)
    yield opened
    opened.close()


def test_migrations_run_once_and_in_order(db: sqlite_utils.Database) -> None:
    migrate(db, (first,))
    assert version(db) == 1
    migrate(db, (first, second))
    migrate(db, (first, second))
    assert version(db) == 2
    assert list(db.table("a").columns_dict) == ["x", "y"]


def test_a_migration_that_fails_leaves_the_file_at_its_version(db: sqlite_utils.Database) -> None:
    migrate(db, (first,))
    with pytest.raises(RuntimeError, match="stop"):
        migrate(db, (first, second, broken))
    assert version(db) == 1
    assert db.table_names() == ["a"]

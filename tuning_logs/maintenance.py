"""Keeping a database small and sound: prune and check."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hlotune.hlo.kernel import Kernel
from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.connection import errors_in_words
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    rows: int
    """How many were read."""
    problems: tuple[str, ...]
    """One line each; none for a sound database."""


MOST = 2**63 - 1
"""SQLite compares with no larger number."""


def prune(database: Database, *, keep: int) -> int:
    """Keeps the best `keep` trials of a kernel under each conditions, and drops all failures.

    But for failures of what had a time before: without them it would be champion again.
    Comparisons with the default stay, and so what `apply` does; dropped candidates may be tried
    again.  Runs that are finished lose their searcher's state.  Returns the number of trials gone.
    """
    if keep < 1:
        raise ValueError(f"expected to keep one trial or more, got {keep}")
    with database.writing() as sql:
        before = sql.table("trials").count
        sql.execute(
            """delete from trials where id not in (
                select id from (
                    select id, row_number() over (
                        partition by kernel, target, toolchain, cache, threads, clock
                        order by time_s, length(schedule), schedule, id
                    ) as place
                    from trials where time_s is not null
                ) where place <= ?
            ) and not (failure_kind is not null and exists (
                select * from trials as timed
                where timed.kernel = trials.kernel and timed.target = trials.target
                and timed.toolchain = trials.toolchain and timed.cache = trials.cache
                and timed.threads = trials.threads and timed.schedule = trials.schedule
                and timed.time_s is not null
            ))""",
            [min(keep, MOST)],
        )
        sql.execute(
            "delete from states where run in (select id from runs where finished is not null)"
        )
        gone = before - sql.table("trials").count
    with errors_in_words(database.path):
        database.sql.vacuum()
    return gone


def check(database: Database) -> Check:
    """Reads everything: the file's own structure, foreign keys, hashes, and what should parse."""
    problems: list[str] = []
    count = 0
    try:
        problems += [*_structure(database), *_dangling(database)]
        for table in TABLES:
            for row in database.query(f"select * from {table}"):
                count += 1
                problems += _unusable(table, row)
    except DatabaseError as error:
        problems.append(str(error))
    return Check(rows=count, problems=tuple(problems))


def _unusable(table: str, row: Row) -> Iterator[str]:
    try:
        READERS[table](row)
    except (KeyError, TypeError, ValueError) as error:
        yield f"{table} {_name(row)}: {error}"


def _structure(database: Database) -> Iterator[str]:
    for row in database.query("pragma integrity_check"):
        if row["integrity_check"] != "ok":
            yield f"file: {row['integrity_check']}"


def _dangling(database: Database) -> Iterator[str]:
    for row in database.query("pragma foreign_key_check"):
        yield f"{row['table']} row {row['rowid']}: refers to a row of {row['parent']} that is gone"


def _name(row: Row) -> str:
    key = row.get("id") or row.get("key") or row.get("fingerprint") or row.get("run")
    return str(key)[:12]


def _check_kernel(row: Row) -> None:
    _same("key of the text", Kernel(row["text"]).key, row["key"])
    _same("family of the text", Kernel(row["text"]).family, row["family"])


def _check_target(row: Row) -> None:
    identity = Target.of(json.loads(row["identity"]))
    _same("fingerprint of the identity", identity.fingerprint, row["fingerprint"])


def _check_toolchain(row: Row) -> None:
    _same("key of the versions", rows.toolchain_of(json.loads(row["versions"])).key, row["key"])


def _same(what: str, computed: str, recorded: str) -> None:
    if computed != recorded:
        raise ValueError(f"{what} is {computed}, recorded is {recorded}")


READERS: dict[str, Callable[[Row], object]] = {
    **dict.fromkeys(TABLES, lambda row: row),
    "kernels": _check_kernel,
    "targets": _check_target,
    "toolchains": _check_toolchain,
    "runs": lambda row: (json.loads(row["options"]), rows.summary_of(row["summary"])),
    "trials": lambda row: rows.trial_of(row, Kernel("")),
    "finals": rows.final_of,
}
"""What raises KeyError, TypeError or ValueError for a row that cannot be used."""

"""Keeping a database small and sound: prune and check."""

from hlotune.tuning_logs import soundness
from hlotune.tuning_logs.connection import errors_in_words
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.soundness import Check

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
    return soundness.check(database.query)

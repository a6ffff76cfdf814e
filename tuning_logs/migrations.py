"""The schema, as the ordered list of changes that made it.

`PRAGMA user_version` of a file counts the migrations it has seen.  They run in one transaction
together with the new count, so that a file is always at a version.  A migration is never edited
once released: add the next one.
"""

from collections.abc import Callable, Sequence

import sqlite_utils

from hlotune.hlo.kernel import Kernel

APPLICATION_ID = 0x484C4F54
"""`HLOT`, in the header of each of our files: tells them from other programs' SQLite files."""

Migration = Callable[[sqlite_utils.Database], None]


def version_1(db: sqlite_utils.Database) -> None:
    """Dates are ISO 8601 in UTC, JSON is text; a column named after a table holds its key."""
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    _things_of_their_own(db)
    _runs(db)
    _trials(db)
    _finals(db)


def _things_of_their_own(db: sqlite_utils.Database) -> None:
    """Rows keyed by a hash of what they are: equal in every database."""
    db.table("kernels").create(
        {"key": str, "family": str, "text": str, "label": str},
        pk="key",
        not_null={"family", "text"},
        strict=True,
    ).create_index(["family"])
    db.table("targets").create(
        {"fingerprint": str, "name": str, "identity": str, "properties": str},
        pk="fingerprint",
        not_null={"name", "identity"},
        strict=True,
    )
    db.table("toolchains").create(
        {"key": str, "versions": str}, pk="key", not_null={"versions"}, strict=True
    )
    db.table("programs").create(
        {"key": str, "name": str, "source": str}, pk="key", not_null={"name"}, strict=True
    )
    db.table("sites").create(
        {"program": str, "name": str, "kernel": str, "label": str, "weight": float},
        pk=("program", "name"),
        not_null={"kernel", "label", "weight"},
        foreign_keys=[("program", "programs", "key"), ("kernel", "kernels", "key")],
        strict=True,
    )


def _runs(db: sqlite_utils.Database) -> None:
    """`cache`, `threads`, `numerics`: the setting of the whole run.

    `options`, `summary`: JSON objects.
    """
    db.table("runs").create(
        {
            "id": str, "program": str, "target": str, "toolchain": str,
            "cache": str, "threads": int, "numerics": str,
            "options": str, "seed": int, "started": str, "finished": str, "summary": str,
        },
        pk="id",
        not_null={
            "target", "toolchain", "cache", "threads", "numerics", "options", "seed", "started",
        },
        foreign_keys=[
            ("program", "programs", "key"),
            ("target", "targets", "fingerprint"),
            ("toolchain", "toolchains", "key"),
        ],
        strict=True,
    ).create_index(["program", "started"])  # fmt: skip


def _trials(db: sqlite_utils.Database) -> None:
    """Trials, and the searcher's state after the last batch.

    Either the samples and what belongs to them are there, or the failure.  `time_s` is the median
    of `samples_s`; `number` counts the trials of a run.
    """
    trials = db.table("trials").create(
        {
            "id": str, "run": str, "kernel": str,
            "target": str, "toolchain": str, "cache": str, "threads": int,
            "schedule": str, "samples_s": str, "time_s": float, "clock": str, "numerics": str,
            "error": float, "build_s": float, "failure_kind": str, "failure_message": str,
            "batch": int, "number": int, "recorded": str,
        },
        pk="id",
        not_null={
            "run", "kernel", "target", "toolchain", "cache", "threads",
            "schedule", "batch", "number", "recorded",
        },
        foreign_keys=[
            ("run", "runs", "id"),
            ("kernel", "kernels", "key"),
            ("target", "targets", "fingerprint"),
            ("toolchain", "toolchains", "key"),
        ],
        strict=True,
    )  # fmt: skip
    trials.create_index(["kernel", "target", "toolchain", "cache", "threads"])
    trials.create_index(["run", "number"])
    db.table("states").create(
        {"run": str, "kernel": str, "batch": int, "state": bytes},
        pk=("run", "kernel"),
        not_null={"batch", "state"},
        foreign_keys=[("run", "runs", "id"), ("kernel", "kernels", "key")],
        strict=True,
    )


def _finals(db: sqlite_utils.Database) -> None:
    """Champion against default, one row a kernel and run; `numerics` is the least that the
    schedule needs.
    """
    db.table("finals").create(
        {
            "run": str, "kernel": str, "schedule": str, "numerics": str,
            "default_s": str, "tuned_s": str, "speedup": float, "low": float, "high": float,
            "decision": str, "margin": float, "flops": int, "dtype": str, "decided": str,
        },
        pk=("run", "kernel"),
        not_null={
            "schedule", "numerics", "default_s", "tuned_s", "speedup", "low", "high",
            "decision", "margin", "decided",
        },
        foreign_keys=[("run", "runs", "id"), ("kernel", "kernels", "key")],
        strict=True,
    ).create_index(["kernel"])  # fmt: skip


def version_2(db: sqlite_utils.Database) -> None:
    """Failures say under which numerics they were judged; finals, why they were taken back."""
    db.execute(
        """update trials set numerics = (select numerics from runs where runs.id = run)
        where failure_kind is not null"""
    )
    db.table("finals").add_column("withdrawn", str)


def version_3(db: sqlite_utils.Database) -> None:
    """Finals name the machine code that was verified and timed."""
    db.table("finals").add_column("code", str)


def version_4(db: sqlite_utils.Database) -> None:
    """Trials say how far off they are in units that all algorithms share."""
    db.table("trials").add_column("relative_error", float)


def version_5(db: sqlite_utils.Database) -> None:
    """Runs keep what has to be said beside their figures, as a JSON array of texts."""
    db.table("runs").add_column("notes", str)


def version_6(db: sqlite_utils.Database) -> None:
    """Families tell element types and attributes apart; before they erased all digits."""
    for row in list(db.query("select key, text from kernels")):
        family = Kernel(row["text"]).family
        db.execute("update kernels set family = ? where key = ?", [family, row["key"]])


def version_7(db: sqlite_utils.Database) -> None:
    """Trials keep what the cost model said of them when they were chosen, as a score: the higher,
    the faster.  Scores are comparable within a batch of a kernel, between which the model learns.
    """
    db.table("trials").add_column("predicted", float)


MIGRATIONS: tuple[Migration, ...] = (
    version_1, version_2, version_3, version_4, version_5, version_6,
    version_7,
)  # fmt: skip

TABLES = (
    "kernels", "targets", "toolchains", "programs", "sites", "runs", "trials", "states", "finals",
)  # fmt: skip
"""Parents before children: rows may be copied in this order without breaking a foreign key."""


def version(db: sqlite_utils.Database) -> int:
    """How many migrations the file has seen."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite_utils.Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Brings a file to the newest version, in one transaction.

    Several processes may do so at once: one of them does it.
    """
    if version(db) >= len(migrations):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version(db), len(migrations)):
            migrations[number](db)
            db.execute(f"PRAGMA user_version = {number + 1}")
        db.commit()
    except BaseException:
        db.rollback()
        raise

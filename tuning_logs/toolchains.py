"""Other toolchains under which a kernel was tuned on this machine, in the same cache mode and on as
many threads.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hlotune.measure.machine.targets import toolchain, xla_flags
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.target import Toolchain
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.rows import Row


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is known of a kernel under another toolchain."""

    toolchain: Toolchain
    trials: int
    """Trials of schedules of ours, failures too."""


def with_other_flags(
    database: Database, kernel_key: str, under: Conditions
) -> tuple[Elsewhere, ...]:
    """Toolchains that differ from this one in XLA_FLAGS alone, those with most trials first."""
    return tuple(
        x for x in _tried(database, kernel_key, under)
        if replace(x.toolchain, xla_flags=xla_flags()).key == under["toolchain_key"]
    )  # fmt: skip


def with_other_jaxlib(
    database: Database, kernel_key: str, under: Conditions
) -> tuple[Elsewhere, ...]:
    """Toolchains that differ from this one in jaxlib's version alone, the newest version first.

    They compile a schedule to the same machine code, but the default that it was faster than may
    be another one.
    """
    here = toolchain().jaxlib
    found = [
        x for x in _tried(database, kernel_key, under)
        if replace(x.toolchain, jaxlib=here).key == under["toolchain_key"]
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda x: _numbers(x.toolchain.jaxlib), reverse=True))


def _numbers(version: str) -> tuple[tuple[int, str], ...]:
    """Versions in order: 0.9 is older than 0.10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in version.split("."))


def _tried(database: Database, kernel_key: str, under: Conditions) -> Iterator[Elsewhere]:
    """All but the one of these conditions, those with most trials first."""
    found = database.query(
        """select versions, (
            select count(*) from trials
            where trials.kernel = :kernel and trials.schedule <> :default
                and trials.target = :fingerprint and trials.cache = :cache
                and trials.threads = :threads and trials.toolchain = toolchains.key
        ) as n, exists (
            select 1 from finals join runs on runs.id = finals.run
            where finals.kernel = :kernel
                and runs.target = :fingerprint and runs.cache = :cache
                and runs.threads = :threads and runs.toolchain = toolchains.key
        ) as decided
        from toolchains where key <> :toolchain_key and (n or decided)
        order by n desc, key""",
        {"kernel": kernel_key, "default": DEFAULT.to_json(), **under},
    )
    for row in found:
        if read := _toolchain(row):
            yield Elsewhere(read, row["n"])


def _toolchain(row: Row) -> Toolchain | None:
    """None where it is of another version of hlotune."""
    try:
        return rows.toolchain_of(json.loads(row["versions"]))
    except (TypeError, ValueError):
        return None

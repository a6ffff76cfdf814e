"""Whether the rows of a database can be used, each by itself and all together."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Clock, FailureKind
from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.numerics import NUMERICS
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.target import Properties
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.finals import Outcome
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.plausible import require_plausible
from hlotune.tuning_logs.rows import Row

Query = Callable[[str], list[Row]]
UNUSABLE = (AttributeError, LookupError, TypeError, ValueError)
"""What reading a row raises that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    rows: int
    """How many were read."""
    problems: tuple[str, ...]
    """One line each; none for a sound database."""


def check(query: Query) -> Check:
    """Reads everything: the file's own structure, foreign keys, hashes, and what should parse."""
    problems: list[str] = []
    count = 0
    try:
        problems += [*_structure(query), *_dangling(query)]
        for table in TABLES:
            for row in query(f"select * from {table}"):
                count += 1
                problems += _unusable(table, row)
    except DatabaseError as error:
        problems.append(str(error))
    return Check(rows=count, problems=tuple(problems))


def _unusable(table: str, row: Row) -> Iterator[str]:
    try:
        READERS[table](row)
        require_plausible(table, row)
    except UNUSABLE as error:
        yield f"{table} {_name(row)}: {error}"


def _structure(query: Query) -> Iterator[str]:
    for row in query("pragma integrity_check"):
        if row["integrity_check"] != "ok":
            yield f"file: {row['integrity_check']}"


def _dangling(query: Query) -> Iterator[str]:
    for row in query("pragma foreign_key_check"):
        yield f"{row['table']} row {row['rowid']}: refers to a row of {row['parent']} that is gone"


def _name(row: Row) -> str:
    key = row.get("id") or row.get("key") or row.get("fingerprint") or row.get("run")
    return str(key)[:12]


def _check_kernel(row: Row) -> None:
    _same("key of the text", Kernel(row["text"]).key, row["key"])
    _same("family of the text", Kernel(row["text"]).family, row["family"])


def _check_target(row: Row) -> None:
    identity = target_of(json.loads(row["identity"]))
    _same("fingerprint of the identity", identity.fingerprint, row["fingerprint"])
    if row["properties"] is not None:
        peaks = Properties(**json.loads(row["properties"])).flops_per_s
        if not all(isinstance(peak, int | float) for peak in peaks.values()):
            raise ValueError(f"expected peaks in numbers, got {row['properties']!r:.80}")


def _check_toolchain(row: Row) -> None:
    _same("key of the versions", rows.toolchain_of(json.loads(row["versions"])).key, row["key"])


def _same(what: str, computed: str, recorded: str) -> None:
    if computed != recorded:
        raise ValueError(f"{what} is {computed}, recorded is {recorded}")


def _check_run(row: Row) -> None:
    _among(row["numerics"], NUMERICS)
    _among(row["cache"], get_args(CacheMode))
    if not isinstance(json.loads(row["options"]), dict):
        raise ValueError(f"expected options as a JSON object, got {row['options']!r:.80}")
    rows.summary_of(row["summary"])
    rows.notes_of(row["notes"])


def _check_trial(row: Row) -> None:
    rows.trial_of(row, Kernel(""))
    _among(row["cache"], get_args(CacheMode))
    _among(row["numerics"], NUMERICS)
    if row["failure_kind"] is not None:
        _among(row["failure_kind"], get_args(FailureKind))
    else:
        _among(row["clock"], get_args(Clock))


def _check_final(row: Row) -> None:
    final = rows.final_of(row)
    _among(final.numerics, NUMERICS)
    _among(final.outcome, get_args(Outcome))


def _among(value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got {value!r:.80}")


READERS: dict[str, Callable[[Row], object]] = {
    **dict.fromkeys(TABLES, lambda row: row),
    "kernels": _check_kernel,
    "targets": _check_target,
    "toolchains": _check_toolchain,
    "runs": _check_run,
    "trials": _check_trial,
    "finals": _check_final,
}
"""What raises one of `UNUSABLE` for a row that cannot be used."""

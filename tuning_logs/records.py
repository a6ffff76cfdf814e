"""JSON lines: the database as text.  Each line is one record, of a trial, a final or a run.

A record is self-contained: it carries the kernel's text, the target's identity and the toolchain's
versions, never only their hashes.  Any line alone, on any machine, says what was tried and what
came of it.  Units stand in the names.  The states of searchers stay behind: `merge` carries them.
"""

import gzip
import io
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import IO, Any, TextIO, cast, get_args

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Clock, FailureKind
from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.target import Properties
from hlotune.tuning_logs import finals, rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.lines import FORMAT, RUN_COLUMNS, decoded
from hlotune.tuning_logs.merge import CHUNK, absorb
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.plausible import recomputed, require_plausible
from hlotune.tuning_logs.rows import Row

RowsOf = list[tuple[str, Row]]
"""(table, row)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    records: int
    """Lines taken, known ones included."""
    added: int
    """New trials, finals and runs."""
    broken: int
    """Lines skipped."""
    problems: tuple[str, ...]
    """Line number and reason of the first five that were skipped."""


def no_records(path: str | Path, taken: Imported) -> DatabaseError:
    """What to say of a file in which no line is a record."""
    first = f", {taken.problems[0]}" if taken.problems else ""
    return DatabaseError(
        f"expected records in {path}, got none (broken lines: {taken.broken}{first}); give a file "
        "that `tune db export` wrote"
    )


def export_records(database: Database, path: str | Path) -> int:
    """Writes all of a database, compressed if the name ends in `.gz`; returns the number of lines.

    Equal databases give equal bytes.  The file appears whole or not at all.  Raises DatabaseError
    where it cannot be written.
    """
    path, lines = Path(path), 0
    with _file_errors(path), whole(path) as part, _created(part) as out:
        for record in records(database):
            out.write(json.dumps(record, separators=(",", ":")) + "\n")
            lines += 1
    return lines


def import_records(database: Database, path: str | Path) -> Imported:
    """Adds what the lines say; a line that cannot be used is skipped and counted, never fatal.

    Importing twice changes nothing.  Raises DatabaseError where the file cannot be opened.
    """
    taken, added, problems = 0, 0, list[str]()
    with _file_errors(Path(path)), _opened(Path(path)) as source:
        lines = _numbered(source, problems)
        while chunk := list(_chunk(lines)):
            with database.writing():
                for number, line in chunk:
                    try:
                        added += _absorb_line(database, line)
                        taken += 1
                    except BROKEN as error:
                        problems.append(f"line {number}: {type(error).__name__}: {error}"[:300])
    return Imported(records=taken, added=added, broken=len(problems), problems=tuple(problems[:5]))


BROKEN = (
    AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError,
    sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
)  # fmt: skip
"""What a line that is no record of ours can raise on its way into the tables, which are typed."""


def records(database: Database) -> Iterator[dict[str, Any]]:
    """The records of a database: runs, finals, then trials in the order of recording."""
    for run in database.query("select * from runs order by started, id"):
        yield _run_record(database, run)
    parents = {t: _by_key(database, t) for t in ("kernels", "targets", "toolchains", "runs")}
    for final in database.query("select * from finals order by decided, run, kernel"):
        run = parents["runs"][final["run"]]
        where = {"target": run["target"], "toolchain": run["toolchain"]}
        yield _record("final", {**final, **where}, parents)
    for trial in database.query("select * from trials order by recorded, number, id"):
        yield _record("trial", trial, parents)


def _by_key(database: Database, table: str) -> dict[str, Row]:
    key = database.sql.table(table).pks[0]
    return {row[key]: row for row in database.query(f"select * from {table}")}


def _record(kind: str, row: Row, parents: dict[str, dict[str, Row]]) -> dict[str, Any]:
    run = parents["runs"][row["run"]]
    return {
        "hlotune": FORMAT,
        "record": kind,
        **decoded(row),
        "kernel": _kernel_json(parents["kernels"][row["kernel"]]),
        "target": _target_json(parents["targets"][row["target"]]),
        "toolchain": json.loads(parents["toolchains"][row["toolchain"]]["versions"]),
        "run": decoded({column: run[column] for column in (*RUN_COLUMNS, "notes")}),
    }


def _run_record(database: Database, run: Row) -> dict[str, Any]:
    def one(table: str, key: str, value: str | None) -> Row | None:
        found = database.query(f"select * from {table} where {key} = :key", {"key": value})
        return found[0] if found else None

    sites = database.query(
        """select name, sites.label, weight, text, kernels.label as kernel_label
        from sites join kernels on key = kernel where program = :program order by name""",
        {"program": run["program"]},
    )
    for site in sites:
        site["kernel"] = {"text": site.pop("text"), "label": site.pop("kernel_label")}
    return {
        "hlotune": FORMAT,
        "record": "run",
        **decoded(run),
        "program": one("programs", "key", run["program"]),
        "target": _target_json(cast(Row, one("targets", "fingerprint", run["target"]))),
        "toolchain": json.loads(cast(Row, one("toolchains", "key", run["toolchain"]))["versions"]),
        "sites": sites,
    }


def _kernel_json(row: Row) -> dict[str, Any]:
    return {"text": row["text"], "label": row["label"]}


def _target_json(row: Row) -> dict[str, Any]:
    return decoded({"identity": row["identity"], "properties": row["properties"]})


def _absorb_line(database: Database, line: str) -> int:
    """Adds one record, or nothing of it; returns 1 where it was new."""
    record = json.loads(line)
    if record["hlotune"] > FORMAT:
        raise ValueError(f"expected format {FORMAT}, got {record['hlotune']}: upgrade hlotune")
    parts = READERS[record["record"]](record)
    parts.sort(key=lambda part: TABLES.index(part[0]))
    for table, row in parts:
        require_plausible(table, row)
    with database.sql.atomic():
        new = [absorb(database, table, [row]) for table, row in parts]
    return new[-1]  # the record's own row: all others are what it refers to


def _trial_rows(record: dict[str, Any]) -> RowsOf:
    parents, keys = _parent_rows(record)
    row = {**_columns(record, "id", "threads", "batch", "number", "recorded"), **keys}
    row["schedule"] = _schedule_text(record)
    row["cache"] = _one_of(record["cache"], CacheMode)
    # Failures of older records do not say under which setting they were judged: their run does.
    row["numerics"] = _one_of(record["numerics"] or record["run"]["numerics"], Numerics)
    measured = record["samples_s"] is not None
    if measured:
        samples = rows.samples_of(rows.dumps(record["samples_s"]))
        row |= {"samples_s": rows.dumps(samples), "time_s": median(samples)}
        row |= {"clock": _one_of(record["clock"], Clock)}
        row |= {"error": float(record["error"]), "build_s": float(record["build_s"])}
        relative = record.get("relative_error")  # older records have none
        row["relative_error"] = None if relative is None else float(relative)
    else:
        of_measurements = ("samples_s", "time_s", "clock", "error", "build_s", "relative_error")
        row |= dict.fromkeys(of_measurements)
    predicted = record.get("predicted")  # older records have none
    row["predicted"] = None if predicted is None else float(predicted)
    failure = None if measured else _one_of(record["failure_kind"], FailureKind)
    row |= {"failure_kind": failure, "failure_message": record["failure_message"]}
    return [*parents, ("trials", row)]


def _final_rows(record: dict[str, Any]) -> RowsOf:
    parents, keys = _parent_rows(record)
    row = _columns(record, "speedup", "low", "high", "margin", "flops", "dtype", "decided")
    row |= {"run": keys["run"], "kernel": keys["kernel"], "schedule": _schedule_text(record)}
    row["numerics"] = _one_of(record["numerics"], Numerics)
    row["decision"] = _one_of(record["decision"], finals.Outcome)
    row |= {name: record.get(name) for name in ("code", "withdrawn")}  # not in older records
    for samples in ("default_s", "tuned_s"):
        row[samples] = rows.dumps(rows.samples_of(rows.dumps(record[samples])))
    return [*parents, ("finals", recomputed(row))]


def _run_rows(record: dict[str, Any]) -> RowsOf:
    program = record["program"]
    parts, keys = _place_rows(record)
    row = _run_row(record, keys) | {"finished": record["finished"], "summary": None}
    if record["summary"] is not None:
        row["summary"] = rows.dumps(record["summary"])
        rows.summary_of(row["summary"])
    if program is not None:
        row["program"] = program["key"]
        parts.append(("programs", _columns(program, "key", "name", "source")))
    for site in record["sites"]:
        kernel = _kernel_row(site["kernel"])
        columns = {**_columns(site, "name", "label", "weight"), "kernel": kernel["key"]}
        parts += [("kernels", kernel), ("sites", {"program": program["key"], **columns})]
    return [*parts, ("runs", row)]


READERS: dict[str, Callable[[dict[str, Any]], RowsOf]] = {
    "trial": _trial_rows,
    "final": _final_rows,
    "run": _run_rows,
}


def _parent_rows(record: dict[str, Any]) -> tuple[RowsOf, Row]:
    parts, keys = _place_rows(record)
    kernel, run = _kernel_row(record["kernel"]), _run_row(record["run"], keys)
    parts += [("kernels", kernel), ("runs", {**run, "finished": None, "summary": None})]
    return parts, {**keys, "kernel": kernel["key"], "run": run["id"]}


def _place_rows(record: dict[str, Any]) -> tuple[RowsOf, Row]:
    measured = record["target"]["properties"]
    properties = None if measured is None else Properties(**measured)
    target = rows.target_row(target_of(record["target"]["identity"]), properties)
    toolchain = rows.toolchain_row(rows.toolchain_of(record["toolchain"]))
    keys = {"target": target["fingerprint"], "toolchain": toolchain["key"]}
    return [("targets", target), ("toolchains", toolchain)], keys


def _kernel_row(data: dict[str, Any]) -> Row:
    return rows.kernel_row(Kernel(data["text"]), data["label"])


def _run_row(data: dict[str, Any], keys: Row) -> Row:
    row = _columns(data, *RUN_COLUMNS) | {"options": rows.dumps(data["options"]), "program": None}
    row["cache"] = _one_of(data["cache"], CacheMode)
    row["numerics"] = _one_of(data["numerics"], Numerics)
    notes = data.get("notes")  # lines of older versions have none
    row["notes"] = rows.dumps(notes) if notes else None
    rows.notes_of(row["notes"])
    return row | keys


def _schedule_text(record: dict[str, Any]) -> str:
    """Kept as it came: another version of hlotune may read what this one cannot."""
    value = record["schedule"]
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _columns(data: dict[str, Any], *names: str) -> Row:
    return {name: data[name] for name in names}


def _one_of(value: str, choices: Any) -> str:
    if value not in get_args(choices):
        raise ValueError(f"expected one of {', '.join(get_args(choices))}, got {value!r}")
    return value


LONGEST_LINE = 1 << 22
"""Characters; of a longer line no more is read into memory at once.  Records have some thousands,
those of runs as many for each of their kernels."""


def _chunk(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The next lines for one transaction; few where they are long, for all are in memory."""
    characters = 0
    for number, line in islice(lines, CHUNK):
        yield number, line
        characters += len(line)
        if characters > LONGEST_LINE:
            return


def _numbered(source: TextIO, problems: list[str]) -> Iterator[tuple[int, str]]:
    """Lines that are not blank; one that is too long, and the end of a compressed file that ends
    too early, are broken lines."""
    number = 0
    try:
        while line := source.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE and not line.endswith("\n"):
                _skip_line(source)
                problems.append(f"line {number}: it has more than {LONGEST_LINE:,} characters")
            elif line.strip():
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.append(f"line {number + 1}: the file cannot be read further ({error})")


def _opened(path: Path) -> TextIO:
    """Bytes that are no UTF-8 become surrogates, which spoil their own line and no other."""
    opened = gzip.open if path.suffix == ".gz" else open
    return cast(TextIO, opened(path, "rt", encoding="utf-8", errors="surrogateescape"))


@contextmanager
def _created(path: Path) -> Iterator[TextIO]:
    """A new file for writing.  A compressed one has no name and time in it: equal records, equal
    bytes.
    """
    with path.open("wb") as raw, ExitStack() as stack:
        out: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
            out = cast(IO[bytes], stack.enter_context(packed))
        yield stack.enter_context(io.TextIOWrapper(out, encoding="utf-8", errors="surrogateescape"))


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (DatabaseError, BrokenPipeError):  # who reads a pipe and leaves has enough
        raise
    except OSError as error:
        reason = error.strerror or error
        raise DatabaseError(
            f"records {path}: cannot be read or written ({reason}); check path and disk"
        ) from error


def _skip_line(source: TextIO) -> None:
    while (rest := source.readline(LONGEST_LINE)) and not rest.endswith("\n"):
        pass

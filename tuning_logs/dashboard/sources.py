"""The databases of a dashboard, opened read-only for each request and closed after it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hlotune.schedules.errors import HlotuneError, NoRecord
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Paired


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One row of the list of runs."""

    source: int
    """The number of its database."""
    id: str
    program: str
    target: str
    started: str
    finished: str | None
    trials: int
    """The number of trials of candidates other than XLA's default."""
    compared: int
    """The number of kernels whose champion was compared with the default."""
    won: int
    whole: Paired | None
    """The comparison of the whole program; None where it was not timed."""
    latest: str | None
    """The time at which the last trial was recorded; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One row of the list of kernels."""

    source: int
    key: str
    label: str
    trials: int
    failures: int
    runs: int
    speedup: float | None
    """The best speedup that was proved; None where none was."""
    newest_run: str


@dataclass(frozen=True, slots=True)
class Sources:
    paths: tuple[Path, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The files' names; whole paths where two are alike."""
        names = [path.name for path in self.paths]
        return tuple(
            name if names.count(name) == 1 else str(path)
            for name, path in zip(names, self.paths, strict=True)
        )

    @contextmanager
    def opened(self, number: int) -> Iterator[Database]:
        """The database with this number, open for reading inside the block.

        Raises NoRecord where none has this number, DatabaseError where it is unreadable.
        """
        if not 0 <= number < len(self.paths):
            raise NoRecord(
                f"expected one of {len(self.paths)} databases, numbered from 0, got {number}; "
                "begin at the list of runs"
            )
        with Database(self.paths[number], read_only=True) as database:
            yield database

    def versions(self) -> tuple[tuple[int, ...], ...]:
        """A version of each database, which stays equal as long as nothing is written to it."""
        return tuple(written(path) for path in self.paths)

    def runs(self) -> list[RunRow]:
        """All runs, the newest first."""
        return self.read()[0]

    def read(self) -> tuple[list[RunRow], list[KernelRow], list[str]]:
        """Runs, the newest first; kernels; and a message for each database that is unreadable."""
        runs, kernels, problems = list[RunRow](), list[KernelRow](), list[str]()
        for number in range(len(self.paths)):
            try:
                with self.opened(number) as database:
                    runs += runs_of(database, number)
                    kernels += kernels_of(database, number)
            except HlotuneError as error:
                problems.append(" ".join(str(error).split()))
        runs.sort(key=lambda run: run.started, reverse=True)
        return runs, kernels, problems


def written(path: Path) -> tuple[int, ...]:
    """Numbers that change when a database file, or the log that older versions keep beside it,
    is written to: inode, time in nanoseconds and size in bytes of each."""
    found: list[int] = []
    for each in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            status = each.stat()
            found += [status.st_ino, status.st_mtime_ns, status.st_size]
    return tuple(found)


def version_of(database: Database, run: str) -> str:
    """A text that stays equal as long as the pages of the run do."""
    found = database.query(
        """select finished, summary is null as open, (select count(*) from trials where run = :run)
            as trials, (select count(*) from finals where run = :run) as finals,
            (select max(decided) from finals where run = :run) as decided
        from runs where id = :run""",
        {"run": run},
    )
    return repr([tuple(row.values()) for row in found])


def runs_of(database: Database, source: int) -> Iterator[RunRow]:
    found = database.query(
        """select runs.id, coalesce(programs.name, '') as program, targets.name as target, identity,
            started, finished, summary,
            (select count(*) from trials where run = runs.id and schedule <> :default) as trials,
            (select max(recorded) from trials where run = runs.id) as latest,
            (select count(*) from finals where run = runs.id) as compared,
            (select count(*) from finals where run = runs.id and decision <> 'kept default'
                and withdrawn is null) as won
        from runs join targets on targets.fingerprint = target
        left join programs on programs.key = program""",
        {"default": DEFAULT.to_json()},
    )
    for row in found:
        yield RunRow(
            source=source, target=rows.target_title(row["target"], row["identity"]),
            whole=_whole(row["summary"]),
            **{k: row[k] for k in ("id", "program", "started", "finished", "trials", "compared",
                                   "won", "latest")},
        )  # fmt: skip


def _whole(summary: str | None) -> Paired | None:
    try:
        found = rows.summary_of(summary)
    except (TypeError, ValueError, KeyError):
        return None
    return found.whole if found else None


def kernels_of(database: Database, source: int) -> Iterator[KernelRow]:
    """The kernels that runs tried, those with the most trials first."""
    found = database.query(
        """select key, coalesce(label, '') as label,
            (select max(speedup) from finals
                where kernel = key and decision = 'tuned' and withdrawn is null) as speedup,
            sum(schedule <> :default) as trials, count(failure_kind) as failures,
            count(distinct run) as runs,
            (select runs.id from trials join runs on runs.id = run where kernel = key
                order by started desc limit 1) as newest_run
        from kernels join trials on trials.kernel = key group by key order by trials desc, key""",
        {"default": DEFAULT.to_json()},
    )
    for row in found:
        yield KernelRow(source=source, **row)


def sources(paths: Sequence[Path]) -> Sources:
    """The databases at these paths.  Raises DatabaseError where one cannot be read."""
    found = Sources(tuple(dict.fromkeys(paths)))
    for number in range(len(found.paths)):
        with found.opened(number):
            pass
    return found

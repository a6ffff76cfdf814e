"""What is in a database, for people: kernels, counts, failures with an example, and finding by
prefix.
"""

from dataclasses import dataclass

from hlotune.schedules.errors import NoRecord
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.best_options import SPACE
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.rows import Row, target_title


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One kernel of `tune db ls`."""

    key: str
    family: str
    label: str
    trials: int
    """Candidates of ours, without the default."""
    failures: int
    targets: int
    speedup: float | None
    """Best proved speedup over the default, on any target; None where nothing was proved faster, or
    all that was is taken back.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """One kind of failure, with the latest example."""

    kind: str
    count: int
    kernel: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    id: str
    program: str
    target: str
    started: str
    finished: str | None
    trials: int
    """Trials of candidates of ours, without the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    rows: dict[str, int]
    """Rows of each table."""
    candidates: int
    """Trials of candidates of ours, which is what runs count; the others timed the default."""
    failures: tuple[FailureLine, ...]
    """Most frequent first."""
    speedups: tuple[KernelLine, ...]
    """The ten kernels that gained most."""
    runs: tuple[RunLine, ...]
    """Newest first."""


def ls(database: Database) -> list[KernelLine]:
    """All kernels, most tried first."""
    found = database.query(
        """select key, family, coalesce(label, '') as label,
            (select max(speedup) from finals
                where kernel = key and decision = 'tuned' and withdrawn is null) as speedup,
            count(trials.id) as trials, count(failure_kind) as failures,
            count(distinct target) as targets
        from kernels left join trials on trials.kernel = key and schedule <> :default
        group by key order by trials desc, key""",
        {"default": DEFAULT.to_json()},
    )
    return [KernelLine(**row) for row in found]


def stats(database: Database) -> Stats:
    kernels = ls(database)
    won = [line for line in kernels if line.speedup is not None]
    won.sort(key=lambda line: -(line.speedup or 0))
    counts = {t: database.query(f"select count(*) as n from {t}")[0]["n"] for t in TABLES}
    return Stats(
        rows=counts,
        candidates=sum(line.trials for line in kernels),
        failures=failures(database),
        speedups=tuple(won[:10]),
        runs=runs(database),
    )


def failures(database: Database, run: str | None = None) -> tuple[FailureLine, ...]:
    """How many candidates failed in which way, of one run or of all."""
    found = database.query(
        """select failure_kind as kind, count(*) as count, kernel,
            coalesce(failure_message, '') as message, max(recorded) as latest
        from trials where failure_kind is not null and (:run is null or run = :run)
        group by failure_kind order by count desc, kind""",
        {"run": run},
    )
    return tuple(FailureLine(**{k: v for k, v in row.items() if k != "latest"}) for row in found)


def runs(database: Database) -> tuple[RunLine, ...]:
    found = database.query(
        """select runs.id, coalesce(programs.name, '') as program, targets.name as target, identity,
            started, finished,
            (select count(*) from trials where run = runs.id and schedule <> :default) as trials
        from runs join targets on targets.fingerprint = target
        left join programs on programs.key = program
        order by started desc, runs.id""",
        {"default": DEFAULT.to_json()},
    )
    return tuple(
        RunLine(
            id=row["id"],
            program=row["program"],
            target=target_title(row["target"], row["identity"]),
            started=row["started"],
            finished=row["finished"],
            trials=row["trials"],
        )
        for row in found
    )


def find_kernel(database: Database, name: str) -> str:
    """The key of the kernel with this label or hash prefix.

    Raises NoRecord where there is none, or more than one.
    """
    found = database.query(
        """select key as id, coalesce(label, '') as about from kernels
        where :name <> '' and (label = :name or substr(key, 1, length(:name)) = :name)
        order by key""",
        {"name": name},
    )
    return _only(found, name, "kernel", "tune db ls")


def find_run(database: Database, name: str) -> str:
    """The id of the run with this prefix, or of the newest run of a program by name, source or key.

    Raises NoRecord where there is none, or where the name fits programs of several sources, or
    a prefix more than one run.
    """
    by_program = database.query(
        """select id, coalesce(source, '') as source, max(started) as started
        from runs join programs on programs.key = program
        where :name in (programs.name, source, programs.key)
        and coalesce(json_extract(options, '$.space'), '') <> :space
        group by source order by started desc""",
        {"name": name, "space": SPACE},
    )
    if len(by_program) > 1:
        several = ", ".join(f"{row['source']} (run {row['id'][:12]})" for row in by_program[:5])
        raise NoRecord(
            f"expected one program, got {name!r}, which fits {len(by_program)}: {several}; "
            "give its source, or the run"
        )
    found = by_program or database.query(
        """select id, started as about from runs
        where :name <> '' and substr(id, 1, length(:name)) = :name order by id""",
        {"name": name},
    )
    return _only(found, name, "run", "tune db stats")


def _only(found: list[Row], name: str, what: str, where_listed: str) -> str:
    if len(found) == 1:
        return str(found[0]["id"])
    if not found:
        raise NoRecord(f"expected a recorded {what}, got {name!r}; `{where_listed}` lists them")
    several = ", ".join(f"{row['id'][:12]} {row['about']}".strip() for row in found[:5])
    raise NoRecord(
        f"expected one {what}, got {name!r}, which fits {len(found)}: {several}; give more digits"
    )

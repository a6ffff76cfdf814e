"""The tuning database: what was tried, where, and what came of it.

One SQLite file that many processes may share.  Every write is one short transaction, so a process
killed at any instant loses at most the batch in flight.  Ids are hashes of content or random,
unique everywhere: merging and importing twice changes nothing.

What the tuner and `apply` need are methods here.  All else are functions over it: `decisions`,
`listing`, `merge`, `upkeep`, `records`, `report`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Protocol, TypedDict, Unpack

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Trial
from hlotune.schedules.errors import NoRecord
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Properties, Target, Toolchain
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database_file import DatabaseFile
from hlotune.tuning_logs.finals import Final, Summary
from hlotune.tuning_logs.rows import Row


class Conditions(TypedDict):
    """The conditions under which a kernel was timed.

    Times are compared where all four are equal, and nowhere else.
    """

    fingerprint: str
    toolchain_key: str
    cache: CacheMode
    threads: int


def conditions(target: Target, toolchain: Toolchain, cache: CacheMode = "model") -> Conditions:
    return Conditions(
        fingerprint=target.fingerprint,
        toolchain_key=toolchain.key,
        cache=cache,
        threads=target.host_threads,
    )


SETTINGS = (
    "program", "target", "toolchain", "cache", "threads", "numerics", "options", "seed",
)  # fmt: skip
"""Columns in which a run equals one that it goes on with."""

UNDER = """target = :fingerprint and toolchain = :toolchain_key
    and cache = :cache and threads = :threads"""
"""The conditions as SQL."""

MOST_TRIALS = 2**62
"""More trials than one kernel can have."""


class ProgramIdentity(Protocol):
    """What is kept of a program."""

    @property
    def key(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str: ...


class SiteIdentity(Protocol):
    """What is kept of a site; `weight` is how often it runs in one run of the program."""

    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> Kernel: ...
    @property
    def label(self) -> str: ...
    @property
    def weight(self) -> float: ...


class Database(DatabaseFile):
    """What the tuner and `apply` record and ask for.  Every method raises DatabaseError where the
    file cannot be read or written.
    """

    def start_run(
        self,
        program: ProgramIdentity | None,
        target: Target,
        toolchain: Toolchain,
        *,
        sites: Iterable[SiteIdentity] = (),
        properties: Properties | None = None,
        cache: CacheMode = "model",
        numerics: Numerics = "standard",
        options: Mapping[str, object] | None = None,
        seed: int = 0,
        notes: Sequence[str] = (),
    ) -> str:
        """Records what is going to be tuned, where and how; returns the id of the run.

        `options` are free JSON; `notes` are what has to be said beside the run's figures.
        """
        run = {
            "id": rows.new_id(),
            "program": program.key if program else None,
            "target": target.fingerprint,
            "toolchain": toolchain.key,
            "cache": cache,
            "threads": target.host_threads,
            "numerics": numerics,
            "options": rows.dumps(dict(options or {})),
            "seed": seed,
            "started": rows.now(),
            "notes": rows.dumps(list(notes)) if notes else None,
        }
        with self.writing():
            self._put_target(target, properties)
            self._put("toolchains", rows.toolchain_row(toolchain))
            if program:
                self._put_program(program, sites)
            self._put("runs", run)
        return str(run["id"])

    def finish_run(self, run: str, summary: Summary | None = None) -> None:
        """Marks the run as finished.  Raises NoRecord where there is no such run."""
        text = None if summary is None else rows.dumps(asdict(summary))
        with self.writing():
            self._put("runs", {**self._run(run), "finished": rows.now(), "summary": text})

    def add(
        self,
        run: str,
        kernel: Kernel,
        trials: Sequence[Trial],
        *,
        batch: int,
        state: bytes | None = None,
        predicted: Sequence[float | None] | None = None,
    ) -> None:
        """Records a batch of trials together with the searcher's state after it: both or neither.

        `predicted` are the scores that the cost model gave to the candidates when they were chosen,
        one a trial: the higher, the faster.  None where no model was asked.

        Raises NoRecord where there is no such run, ValueError for a trial of another kernel.
        """
        if any(t.candidate.kernel != kernel for t in trials):
            raise ValueError(f"expected trials of kernel {kernel.key[:8]}, got some of others")
        with self.writing():
            row = self._run(run)
            first = self._trials_so_far(run)
            self._put("kernels", rows.kernel_row(kernel))
            self._insert(
                "trials",
                [
                    rows.trial_row(trial, row, batch, number, score)
                    for number, (trial, score) in enumerate(
                        zip(trials, predicted or [None] * len(trials), strict=True), first
                    )
                ],
            )
            if state is not None:
                self._put(
                    "states", {"run": run, "kernel": kernel.key, "batch": batch, "state": state}
                )

    def record_final(self, run: str, kernel: Kernel, final: Final) -> None:
        """Records a kernel's champion against its default, in place of what the run said before."""
        with self.writing():
            self._run(run)
            self._put("kernels", rows.kernel_row(kernel))
            self._replace("finals", rows.final_row(run, kernel, final))

    def trials(
        self,
        kernel_key: str,
        *,
        numerics: Numerics = "strict",
        most: int = MOST_TRIALS,
        own: str = "",
        **under: Unpack[Conditions],
    ) -> list[Trial]:
        """All that was tried under equal conditions, failures too, in the order of recording.

        Without results that only a narrower setting than `numerics` found wrong.  Of more than
        `most` trials: the fastest half of so many, the newest half, all of the run `own`, and the
        failures of what is fastest or in a final.
        """
        found = self.query(
            f"""with these as (
                select * from trials where kernel = :kernel and {UNDER}
                and (failure_kind is not 'wrong_result' or numerics in ({at_least(numerics)}))
            ),
            fastest as (
                select id, schedule from these where time_s is not null
                order by time_s, id limit :half
            ),
            newest as (select id from these order by recorded desc, number desc, id limit :half)
            select * from these where (select count(*) from these) <= :most or run = :own
            or id in (select id from fastest union all select id from newest)
            or failure_kind is not null and schedule in (
                select schedule from fastest
                union all select schedule from finals where kernel = :kernel
            )
            order by recorded, number, id""",
            {"kernel": kernel_key, "most": most, "half": most // 2, "own": own, **under},
        )
        return self._parsed(kernel_key, found)

    def seeds(
        self, kernel: Kernel, *, limit: int = 16, apart: str = "", **under: Unpack[Conditions]
    ) -> list[Schedule]:
        """Schedules not yet tried under these conditions, best guess first.

        They are to be located in today's space and timed.  Those of the kernel itself under other
        conditions come before those of its family.  Times of different conditions are never
        compared: the best of each go first, then the second best of each, and so on.  What the run
        `apart` found is left out.
        """
        known = {
            t["schedule"]
            for t in self.query(
                f"select schedule from trials where kernel = :kernel and {UNDER}",
                {"kernel": kernel.key, **under},
            )
        }
        found = self.query(
            f"""select schedule from (
                select schedule, kernel = :kernel as own, row_number() over (
                    partition by kernel, target, toolchain, cache, threads, clock
                    order by time_s, length(schedule), schedule
                ) as place
                from trials
                where kernel in (select key from kernels where family = :family)
                and time_s is not null and run <> :apart and not (kernel = :kernel and {UNDER})
            ) order by own desc, place, length(schedule), schedule""",
            {"kernel": kernel.key, "family": kernel.family, "apart": apart, **under},
        )
        fresh = dict.fromkeys(r["schedule"] for r in found if r["schedule"] not in known)
        schedules = map(self._schedule, fresh)
        return list(islice((s for s in schedules if s and s != DEFAULT), limit))

    def checkpoint(self, run: str, kernel_key: str) -> tuple[int, bytes] | None:
        """The last recorded batch of a kernel, and the searcher's state after it.

        Of the run itself, or else of the newest one like it that did not finish: of the same
        program, conditions, numerics, options and seed.
        """
        same = " and ".join(f"runs.{column} = own.{column}" for column in SETTINGS)
        found = self.query(
            f"""select batch, state from states
            join runs on runs.id = states.run join runs as own on own.id = :run
            where kernel = :kernel and (runs.id = own.id or runs.finished is null and {same})
            order by runs.id = own.id desc, runs.started desc limit 1""",
            {"run": run, "kernel": kernel_key},
        )
        return (found[0]["batch"], found[0]["state"]) if found else None

    def properties(self, target: Target) -> Properties | None:
        """The best that was ever measured on the target."""
        found = self.query(
            "select properties from targets where fingerprint = :fingerprint",
            {"fingerprint": target.fingerprint},
        )
        return rows.properties_of(found[0]["properties"]) if found else None

    def keep_properties(self, target: Target, properties: Properties) -> None:
        """Keeps of each peak the most that was ever measured."""
        with self.writing():
            self._put_target(target, properties)

    def kernel(self, key: str) -> Kernel:
        """Raises NoRecord where the kernel is not known."""
        found = self.query("select text from kernels where key = :key", {"key": key})
        if not found:
            raise NoRecord(
                f"expected the key of a recorded kernel, got {key!r}; `tune db ls` lists them"
            )
        return Kernel(found[0]["text"])

    def _parsed(self, kernel_key: str, found: list[Row]) -> list[Trial]:
        if not found:
            return []
        kernel, trials = self.kernel(kernel_key), list[Trial]()
        for row in found:
            try:
                trials.append(rows.trial_of(row, kernel))
            except ValueError:
                self.unreadable += 1
        return trials

    def _schedule(self, text: str) -> Schedule | None:
        try:
            return Schedule.from_json(text)
        except ValueError:
            self.unreadable += 1
            return None

    def _put_target(self, target: Target, properties: Properties | None) -> None:
        known = self.properties(target)
        best = known.best_of(properties) if known and properties else properties
        self._put("targets", rows.target_row(target, best))

    def _put_program(self, program: ProgramIdentity, sites: Iterable[SiteIdentity]) -> None:
        self._put("programs", {"key": program.key, "name": program.name, "source": program.source})
        for site in sites:
            self._put("kernels", rows.kernel_row(site.kernel, site.label))
            row = {"program": program.key, "name": site.name, "kernel": site.kernel.key}
            self._put("sites", {**row, "label": site.label, "weight": site.weight})

    def _run(self, run: str) -> Row:
        found = self.query("select * from runs where id = :id", {"id": run})
        if not found:
            raise NoRecord(
                f"expected the id of a recorded run, got {run!r}; `tune db stats` lists them"
            )
        return found[0]

    def _trials_so_far(self, run: str) -> int:
        found = self.query("select max(number) as last from trials where run = :id", {"id": run})
        return 0 if found[0]["last"] is None else int(found[0]["last"]) + 1


def at_least(numerics: Numerics) -> str:
    """A setting and those that are laxer, as a list in SQL."""
    return ", ".join(f"'{n}'" for n in NUMERICS[NUMERICS.index(numerics) :])

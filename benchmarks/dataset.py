"""Trials of many kernels, for cost models to learn from: random schedules and guided ones.

    python -m benchmarks.dataset --seconds 600
    python -m benchmarks.dataset --export tuning_logs/trials.jsonl.gz

It goes on where it stopped, however it stopped: what is in the database counts, and what is in the
file that comes with the sources, which is imported first.  What other machines found best is timed
here before anything else: a kernel is held against it and against the default compiler.  All
kernels get their first trials before any gets more, so that it can be left at any time.  Candidates
go the road of every tuning run: built in processes, verified against the oracle, timed, recorded.
They are timed with few samples: what models learn is an order.

At the end it names the kernels that lack trials, or whose best is still far behind; its exit code
is 1 as long as there are any.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path

import numpy as np

from benchmarks.command import RECORDED, command
from benchmarks.dataset_kernels import KERNELS, ROWS, source
from benchmarks.results import Table, conditions, milliseconds, publish
from benchmarks.searching import Operator, kernel_tuner, operator
from hlotune.costmodel.trees import Trees
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.timing.timing import Effort
from hlotune.measure.trial import Candidate, Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import DatabaseError, ProgramError
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.schedule import DEFAULT, XLA
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.contests import Device
from hlotune.search.learning.transfer import config_of
from hlotune.search.searchers.history import History
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.tuner import KernelTuner, Predicted, Step
from hlotune.search.workers import Builder
from hlotune.tuning_logs.database import UNDER, Database
from hlotune.tuning_logs.database import conditions as under_conditions
from hlotune.tuning_logs.records import export_records, import_records

EFFORT = Effort(least_samples=5, most_samples=9, budget_s=0.02, most_calls=8)
BATCH = 32
LEAST_BATCH = 8
BATCH_S = 10.0
"""A batch takes no longer, as far as the last one tells: it is lost with whoever interrupts it."""
SEED = 0
FILE = Path("tuning_logs/trials.jsonl.gz")
"""Trials that come with the sources."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which searcher proposes until a kernel has so many trials."""

    searcher: str
    trials: int


PLAN = (
    Part("random", 64),
    Part("annealing", 128),
    Part("random", 364),
    Part("annealing", 432),
)
"""300 at random in all: models are judged by how they rank those of a kernel, and all."""
ROW_PLAN = (Part("random", 32), Part("annealing", 64), Part("random", 96))
"""The plan for kernels without a contraction."""
ELSEWHERE = "elsewhere"
"""What stands for the searcher in a part of what other machines found best.  Guided searches found
it, so that it counts in no part of the plan, least of all among what was drawn at random."""
BEHIND = 1.3
"""A kernel whose best is so many times slower than the best known gets a further part."""
EXTENDED = Part("annealing", 640)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What there is of a kernel."""

    name: str
    label: str
    family: str
    flops: int
    trials: int
    failures: int
    best_s: float | None
    default_s: float | None


def main() -> int:
    options = parsed()
    target = host_target()
    with ExitStack() as stack:
        database = stack.enter_context(Database(options.database))
        take_up(database)
        builder = stack.enter_context(ProcessBuilder(target))
        runner = stack.enter_context(ProcessRunner(target, effort=EFFORT))
        properties = runner.properties()
        before = conditions(target, properties)
        recorder = Recorder(database, builder, runner, target, properties)
        recorder.record(options.kernels, time.monotonic() + options.seconds)
        lines = [recorder.line(name) for name in options.kernels]
        publish(table(lines), before, [asdict(line) for line in lines])
        if options.export:
            print(f"{export_records(database, options.export)} records in {options.export}")
        missing = recorder.missing(options.kernels)
        for line in missing:
            print(line)
        return 1 if missing else 0


def take_up(database: Database, path: Path = FILE) -> None:
    """Takes up the trials of the file that comes with the sources, so that an export has them too.

    Raises DatabaseError where not all of it can be read: an export would lose the rest.
    """
    if not path.exists():
        return
    found = import_records(database, path)
    if found.broken:
        raise DatabaseError(
            f"expected records in {path}, got {found.broken} broken lines ({found.problems[0]}); "
            "mend or remove the file: writing it again would lose them"
        )
    print(f"{found.added} records of {path} are new to the database")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kernels", nargs="+", choices=KERNELS, metavar="KERNEL", default=tuple(KERNELS)
    )
    parser.add_argument("--seconds", type=float, default=inf, help="after which no batch starts")
    parser.add_argument("--database", type=Path, default=Path("build/dataset.db"))
    parser.add_argument("--export", type=Path, help="where to write all records, as JSON lines")
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def batch_size(missing: int, trial_s: float) -> int:
    """A full batch, or as much of it as takes `BATCH_S`."""
    affordable = max(LEAST_BATCH, int(BATCH_S / trial_s)) if trial_s > 0 else LEAST_BATCH
    return min(missing, BATCH, affordable)


@dataclass
class Recorder:
    """Measures and records; knows of a kernel what its database knows."""

    database: Database
    builder: Builder
    runner: Device
    target: CpuTarget
    properties: Properties
    plan: tuple[Part, ...] = PLAN
    row_plan: tuple[Part, ...] = ROW_PLAN
    extended: Part = EXTENDED
    _operators: dict[str, Operator] = field(default_factory=dict)
    _trial_s: dict[str, float] = field(default_factory=dict)
    """Seconds that a trial of a kernel took last."""
    _exhausted: set[str] = field(default_factory=set)

    def record(self, names: Sequence[str], deadline_s: float = inf) -> None:
        """Part after part, and in each one kernel after the other; ends at `time.monotonic()`."""
        for name in names:
            self._try_elsewhere(name, deadline_s)
        for turn in range(max(len(self.plan), len(self.row_plan))):
            for name in names:
                for goal in self._plan(name)[turn : turn + 1]:
                    self._advance(name, goal, deadline_s)
        for name in filter(self._is_behind, names):
            self._advance(name, self.extended, deadline_s)

    def _plan(self, name: str) -> tuple[Part, ...]:
        return self.row_plan if name in ROWS else self.plan

    def line(self, name: str) -> Line:
        of = self._operator(name)
        every = self._trials(of)
        tried = ours(every)
        times = [t.time_s for t in tried if t.time_s]
        default = [t.time_s for t in every if t not in tried and t.time_s]
        return Line(
            name=name,
            label=of.task.label,
            family=of.task.kernel.family,
            flops=of.task.flops,
            trials=len(tried),
            failures=len(tried) - len(times),
            best_s=min(times, default=None),
            default_s=min(default, default=None),
        )

    def missing(self, names: Sequence[str]) -> list[str]:
        """What keeps kernels from being complete, a line for each; empty where all are."""
        found = []
        for name in names:
            count = self._count(self._operator(name))
            wanted = self._plan(name)[-1].trials
            if count < wanted and name not in self._exhausted:
                found.append(f"{name}: {count} trials of {wanted}; go on")
            elif self._is_behind(name):
                found.append(f"{name}: more than {BEHIND:g}x slower than the default compiler")
        return found

    def _is_behind(self, name: str) -> bool:
        """Than the default compiler: what others found best is among the kernel's own trials."""
        line = self.line(name)
        return bool(line.default_s and (line.best_s or inf) > BEHIND * line.default_s)

    def _try_elsewhere(self, name: str, deadline_s: float) -> None:
        """Measures what other machines and versions found best, where it was not tried here."""
        if time.monotonic() < deadline_s:
            of = self._operator(name)
            if fresh := len(self._elsewhere(of, self._trials(of))):
                self._run(name, Part(ELSEWHERE, fresh), 0, deadline_s)

    def _elsewhere(self, of: Operator, known: Sequence[Trial]) -> Configs:
        """The best schedule of each other machine and version, in the space of this one."""
        found = self.database.query(
            f"""select schedule, min(time_s) from trials where kernel = :kernel
            and time_s is not null and schedule <> :default and not ({UNDER})
            group by target, toolchain, threads, cache, clock order by 2, 1""",
            self._asked(of),
        )
        tried = History(of.task.space)
        rows = _rows(of, [t.candidate.schedule.to_json() for t in ours(known)])
        tried.add(rows, np.full(len(rows), np.nan))
        fresh = _rows(of, [row["schedule"] for row in found])
        return fresh[tried.unseen(fresh)]

    def _advance(self, name: str, part: Part, deadline_s: float) -> None:
        """Measures a part of a kernel, or what is missing of it."""
        if (
            time.monotonic() < deadline_s
            and name not in self._exhausted
            and (done := self._count(self._operator(name))) < part.trials
        ):
            self._run(name, part, done, deadline_s)

    def _run(self, name: str, part: Part, done: int, deadline_s: float) -> None:
        """One part of a kernel, of which so many trials are done, as a run of the database,
        complete when the part is.
        """
        of = self._operator(name)
        known = self._trials(of)
        run = self.database.start_run(
            of.program,
            self.target,
            toolchain(),
            sites=[of.site],
            properties=self.properties,
            options={"dataset": name, **asdict(part)},
            seed=SEED,
        )
        if len(ours(known)) == len(known):
            self._record_default(run, of)
        tuner = self._tuner(run, of, part, known)
        while done < part.trials and time.monotonic() < deadline_s:
            step = tuner.step(batch_size(part.trials - done, self._trial_s.get(name, 0.0)))
            if step is None:
                self._exhausted.add(name)
                break
            done += len(step.trials)
            self._trial_s[name] = step.wall_s / len(step.trials)
            print(said(name, part, done, step), flush=True)
        if done >= part.trials:
            self.database.finish_run(run)

    def _record_default(self, run: str, of: Operator) -> None:
        """The default compiler's time: one of those that a kernel's best is held against."""
        kernel = of.task.kernel
        try:
            found = self.runner.default(kernel)
        except ProgramError as error:
            print(error, flush=True)
            return
        self.database.add(run, kernel, [Trial(Candidate(kernel, DEFAULT), found)], batch=0)

    def _tuner(self, run: str, of: Operator, part: Part, known: Sequence[Trial]) -> KernelTuner:
        """Knows all trials of the kernel; the heuristic's schedule is the first of the plan."""
        kernel, space, model = of.task.kernel, of.task.space, Trees()
        entropy = (SEED, int(kernel.key, 16))
        if part.searcher == ELSEWHERE:
            make, first = SEARCHERS["random"], self._elsewhere(of, known)
        else:
            make, first = SEARCHERS[part.searcher], space.heuristic()[None, :]
        search = make(space, model, entropy, first)

        def record(
            trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
        ) -> None:
            self.database.add(run, kernel, trials, batch=batch, predicted=predicted)

        tuner = kernel_tuner(of.task, search, model, self.builder, self.runner, record)
        tuner.know(known)
        tuner.experience.learn()
        return tuner

    def _operator(self, name: str) -> Operator:
        if name not in self._operators:
            self._operators[name] = operator(name, self.target, source)
        return self._operators[name]

    def _count(self, of: Operator) -> int:
        """Trials of the plan."""
        found = self.database.query(
            f"""select count(*) as n from trials where kernel = :kernel and schedule != :default
            and {UNDER} and run not in
            (select id from runs where json_extract(options, '$.searcher') = :elsewhere)""",
            {**self._asked(of), "elsewhere": ELSEWHERE},
        )
        return int(found[0]["n"])

    def _asked(self, of: Operator) -> dict[str, object]:
        """A kernel on this machine, in questions to the database."""
        under = under_conditions(self.target, toolchain())
        return {"kernel": of.task.kernel.key, "default": DEFAULT.to_json(), **under}

    def _trials(self, of: Operator) -> list[Trial]:
        under = under_conditions(self.target, toolchain())
        return self.database.trials(of.task.kernel.key, numerics="standard", **under)


def _rows(of: Operator, schedules: Sequence[str]) -> Configs:
    """The schedules that stand in today's space, as configs; it knows equal nests whatever their
    schedules.
    """
    space = of.task.space
    found = [c for text in schedules if (c := config_of(space, text)) is not None]
    rows = np.array(found, np.int32).reshape(-1, len(space.heuristic()))
    return rows[space.legal(rows)]


def ours(trials: Sequence[Trial]) -> list[Trial]:
    return [t for t in trials if t.candidate.schedule.algorithm != XLA]


def said(name: str, part: Part, done: int, step: Step) -> str:
    rate = len(step.trials) / step.wall_s
    return (
        f"{name}: {done} of {part.trials}, {part.searcher}, {rate:.1f} trials/s, "
        f"{step.failures} failed, best {milliseconds(step.best_s)} ms"
    )


def table(lines: Sequence[Line]) -> Table:
    rows = [
        [
            line.name, line.label, f"{line.flops / 1e6:.1f}", str(line.trials), str(line.failures),
            milliseconds(line.best_s), milliseconds(line.default_s), gigaflops(line),
        ]
        for line in lines
    ]  # fmt: skip
    total = sum(line.trials for line in lines)
    return Table(
        name="dataset",
        columns=[
            "name", "kernel", ">MFLOP", ">trials", ">failed", ">best ms", ">default ms",
            ">GFLOP/s",
        ],
        rows=rows,
        notes=[
            f"{total} trials of {sum(line.trials > 0 for line in lines)} kernels in "
            f"{len({line.family for line in lines})} families"
        ],
    )  # fmt: skip


def gigaflops(line: Line) -> str:
    return f"{line.flops / line.best_s / 1e9:.1f}" if line.best_s else "-"


if __name__ == "__main__":
    command(main, RECORDED)

"""A whole run over several kernels: budget, finals, result, Ctrl-C; all without hardware."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from hlotune.codegen.built import Built
from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.comparison import Comparison
from hlotune.measure.targets import TARGETS
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.schedules.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.expr import Affine, Apply, Load
from hlotune.schedules.schedule import XLA
from hlotune.schedules.target import Properties, Toolchain
from hlotune.search.budget import Limits
from hlotune.search.progress import Batch, Event, Finalising, Finished, KernelSkipped, Started
from hlotune.search.result import TuneResult
from hlotune.search.searcher import SEARCHERS
from hlotune.search.session import Session
from hlotune.search.tasks import Skipped, Task
from hlotune.search.tuner import Experience
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Paired, Whole
from hlotune.tuning_logs.report import report
from tests.toy import ToySpace

TARGET = TARGETS["x86-64"]
TOOLS = Toolchain(jaxlib="0", llvm="0", codegen="0", xla_flags="")
UNDER = conditions(TARGET, TOOLS)
PROPERTIES = Properties(flops_per_s={"f32": 1e9}, read_bytes_per_s=1e9, clock_hz=1e9)
BUILT = Built(b"object", 0, (), 1, 1)
WHOLE = Whole(
    paired=Paired(default_s=(2.0,), tuned_s=(1.0,), speedup=2.0, low=1.9, high=2.1),
    error=2e-7,
    default_error=1e-7,
)


def task(name: str, seed: int, weight: float = 1.0) -> Task:
    """A kernel of 1000 multiplications with a toy space."""
    index = (Affine.axis("i0"),)
    load = Load("x", index, "f32")
    value = Apply("multiply", (load, load), "f32")
    stage = Stage("out", (Axis("i0", 1000),), (), (Store("y", index),), (value,))
    tensors = tuple(Tensor(n, (1000,), "f32", r) for n, r in (("x", "argument"), ("y", "result")))  # type: ignore[arg-type]
    kernel = Kernel(f"func.func @kernel() {{ {name} }}")
    return Task(kernel, name, weight, Compute(tensors, (stage,)), ToySpace((8,) * 5, seed))


NONE = Kernel("")


@dataclass(frozen=True)
class Identity:
    """Of a program, and of a site."""

    key: str = "0123"
    name: str = "toy"
    source: str = "toy.py:model"
    kernel: Kernel = NONE
    label: str = ""
    weight: float = 1.0


PROGRAM = Identity()


def place(task: Task) -> Identity:
    return Identity(name=task.label, kernel=task.kernel, label=task.label, weight=task.weight)


@dataclass
class FakeDevice:
    """Builder and runner.  `default_s` is by label; Ctrl-C comes at request `interrupt_at`."""

    tasks: Sequence[Task]
    default_s: dict[str, float] = field(default_factory=dict)
    interrupt_at: int = -1
    wrong: bool = False
    requests: int = 0

    def _request(self) -> None:
        self.requests += 1
        if self.requests - 1 == self.interrupt_at:
            raise KeyboardInterrupt

    def _task(self, kernel: Kernel) -> Task:
        return next(t for t in self.tasks if t.kernel == kernel)

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [BUILT for _ in candidates]

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        self._request()
        return [Trial(c, Measurement(samples_s=(self._time_s(c),))) for c, _ in objects]

    def default(self, kernel: Kernel) -> Measurement:
        self._request()
        time_s = self.default_s.get(self._task(kernel).label, 6e-3)
        if time_s < 0:
            raise ProgramError("expected XLA to compile the kernel, got a crash; leave it out")
        return Measurement(samples_s=(time_s,))

    def compare(
        self, kernel: Kernel, objects: Sequence[tuple[Candidate, Built | Failure]], *, pairs: int
    ) -> Comparison:
        default = Measurement(samples_s=self.default(kernel).samples_s * pairs)
        if self.wrong:
            wrong = Failure("wrong_result", "a lost tap")
            return Comparison(default, tuple(wrong for _ in objects))
        times = [self._time_s(c) for c, _ in objects]
        return Comparison(default, tuple(Measurement(samples_s=(t,) * pairs) for t in times))

    def _time_s(self, candidate: Candidate) -> float:
        space: Any = self._task(candidate.kernel).space
        return float(space.times_s(space.locate(candidate.schedule)[None])[0])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def run(
    database: Database,
    tasks: Sequence[Task],
    device: FakeDevice | None = None,
    *,
    limits: Limits | None = None,
    skipped: Sequence[Skipped] = (),
    events: list[Event] | None = None,
    seed: int = 0,
    compare_whole: Callable[[], Whole | None] = lambda: WHOLE,
) -> TuneResult:
    device = device or FakeDevice(tasks)
    told = [] if events is None else events
    session = Session(
        database=database,
        run=database.start_run(
            PROGRAM, TARGET, TOOLS, sites=map(place, tasks), properties=PROPERTIES, seed=seed
        ),
        under=UNDER,
        properties=PROPERTIES,
        builder=device,
        runner=device,
        experience=Experience(Trees()),
        make=SEARCHERS["annealing"],
        seed=seed,
        numerics="standard",
        progress=told.append,
        start_s=0.0,
    )
    result = session.tuned("toy", tasks, skipped, limits or Limits(trials=96))
    return session.finished(result, compare_whole)


def two() -> tuple[Task, Task]:
    return task("conv", 1), task("dense", 2, weight=3)


def test_kernels_that_beat_their_defaults_win(database: Database) -> None:
    result = run(database, two())
    assert [k.won for k in result.kernels] == [True, True]
    for kernel in result.kernels:
        assert kernel.ratio > 1
        assert kernel.best_s is not None
        assert kernel.ratio == pytest.approx(kernel.default_s / kernel.best_s)
        assert kernel.trials == 96


def test_a_default_that_is_not_beaten_is_kept_and_is_no_win(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, {"conv": 0.5e-3}))
    conv, dense = result.kernels
    assert (conv.won, dense.won) == (False, True)
    assert conv.ratio < 1
    assert conv.tuned_s == conv.default_s
    assert dense.tuned_s < dense.default_s


def test_the_database_decides_as_the_result_says(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, {"conv": 0.5e-3}))
    conv, dense = (decision(database, k.key, **UNDER) for k in result.kernels)
    assert conv.schedule.algorithm == XLA
    assert dense.schedule == result.kernels[1].schedule


def test_a_champion_that_proves_wrong_does_not_win(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, wrong=True))
    assert not result.won
    assert result.speedup is None


def test_the_whole_program_is_compared_where_something_won(database: Database) -> None:
    result = run(database, two())
    assert (result.speedup, result.speedup_low, result.speedup_high) == (2.0, 1.9, 2.1)


def test_every_trial_is_recorded_and_the_default_is_one_of_them(database: Database) -> None:
    conv, _ = tasks = two()
    result = run(database, tasks)
    recorded = database.trials(conv.kernel.key, **UNDER)
    assert len(recorded) == 97
    assert recorded[0].candidate.schedule.algorithm == XLA
    assert result.trials == 192


def test_a_second_run_measures_nothing_again(database: Database) -> None:
    conv, _ = tasks = two()
    first, second = run(database, tasks), run(database, tasks, seed=1)
    assert (first.known_trials, second.known_trials) == (0, 192)
    schedules = [t.candidate.schedule for t in database.trials(conv.kernel.key, **UNDER)]
    ours = [s for s in schedules if s.algorithm != XLA]
    assert len(ours) == len(set(ours)) == 192


def test_a_second_run_keeps_the_champion_of_the_first(database: Database) -> None:
    tasks = two()
    first = run(database, tasks, limits=Limits(trials=192))
    second = run(database, tasks, limits=Limits(trials=1), seed=1)
    for before, after in zip(first.kernels, second.kernels, strict=True):
        assert after.ratio >= before.ratio


@pytest.mark.parametrize("request_number", range(2, 6))
def test_ctrl_c_while_searching_keeps_what_was_found(
    database: Database, request_number: int
) -> None:
    tasks = two()
    device = FakeDevice(tasks, interrupt_at=request_number)
    result = run(database, tasks, device)
    assert result.interrupted
    assert result.speedup is None
    assert result.trials == [0, 64, 128, 160][request_number - 2]
    assert len(result.won) == min(2, request_number - 2)


def test_ctrl_c_while_timing_defaults_ends_the_run(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, interrupt_at=1))
    assert result.interrupted
    assert [k.label for k in result.kernels] == ["conv"]
    assert result.trials == 0


def test_ctrl_c_in_the_finals_leaves_the_rest_undecided(database: Database) -> None:
    tasks = two()
    result = run(database, tasks, FakeDevice(tasks, interrupt_at=7))
    assert result.interrupted
    assert [k.won for k in result.kernels] == [False, True]


def test_ctrl_c_while_the_whole_program_is_timed_keeps_the_kernels(database: Database) -> None:
    def interrupted() -> Whole | None:
        raise KeyboardInterrupt

    result = run(database, two(), compare_whole=interrupted)
    assert result.interrupted
    assert result.speedup is None
    assert len(result.won) == 2


def test_a_kernel_that_the_default_compiler_refuses_is_skipped(database: Database) -> None:
    tasks, events = two(), list[Event]()
    result = run(database, tasks, FakeDevice(tasks, {"conv": -1.0}), events=events)
    assert [k.label for k in result.kernels] == ["dense"]
    assert result.skipped[0][0] == "conv"
    assert any(isinstance(e, KernelSkipped) and e.label == "conv" for e in events)


def test_a_program_without_kernels_gives_an_empty_result(database: Database) -> None:
    result = run(database, (), skipped=(Skipped("sort", "no compute"),))
    assert result.kernels == ()
    assert result.skipped == (("sort", "no compute"),)
    assert not result.interrupted


def test_seeds_from_other_conditions_are_measured_first(database: Database) -> None:
    conv, _ = two()
    run(database, (conv,), limits=Limits(trials=64))
    recorded = database.trials(conv.kernel.key, **UNDER)[1:]
    best = min(recorded, key=lambda t: t.time_s or 1.0)
    elsewhere = database.start_run(None, TARGETS["aarch64"], TOOLS)
    with database.writing() as sql:
        sql.execute(
            "update trials set target = ?, run = ?", [TARGETS["aarch64"].fingerprint, elsewhere]
        )
    result = run(database, (conv,), limits=Limits(trials=2), seed=9)
    assert result.known_trials == 0
    assert result.kernels[0].schedule == best.candidate.schedule


def test_without_seeds_the_heuristic_is_measured_first(database: Database) -> None:
    conv, _ = two()
    run(database, (conv,), limits=Limits(trials=8))
    default, first = database.trials(conv.kernel.key, **UNDER)[:2]
    assert default.candidate.schedule.algorithm == XLA
    assert first.candidate.schedule == conv.space.schedule(conv.space.heuristic())


def test_the_errors_of_the_whole_program_are_recorded(database: Database) -> None:
    found = report(database, run(database, two()).run)
    assert (found.relative_error, found.default_relative_error) == (2e-7, 1e-7)
    assert found.whole is not None


def test_a_whole_program_timed_in_vain_keeps_its_errors(database: Database) -> None:
    result = run(database, two(), compare_whole=lambda: replace(WHOLE, paired=None))
    assert result.speedup is None
    found = report(database, result.run)
    assert (found.whole, found.relative_error) == (None, 2e-7)


def test_progress_tells_the_story_in_order(database: Database) -> None:
    events: list[Event] = []
    run(database, two(), limits=Limits(trials=64), events=events)
    names = [type(e).__name__ for e in events]
    assert names == ["Started", *["KernelStarted", "Batch"] * 2, "Finalising", "Finished"]
    started, batch, finalising, finished = events[0], events[2], events[-2], events[-1]
    assert isinstance(started, Started)
    assert isinstance(batch, Batch)
    assert isinstance(finalising, Finalising)
    assert isinstance(finished, Finished)
    assert (started.kernels, finalising.kernels, finished.won) == (2, 2, 2)
    assert batch.label == "dense"  # 6 ms three times weigh more than once
    assert batch.best_s is not None
    assert batch.gflops == pytest.approx(1000 / batch.best_s / 1e9)
    assert batch.peak_share == pytest.approx(batch.gflops)
    assert batch.remaining_s is None


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    trials = []
    for name in ("a.db", "b.db"):
        with Database(tmp_path / name) as opened:
            tasks = two()
            run(opened, tasks)
            trials.append([opened.trials(t.kernel.key, **UNDER) for t in tasks])
    assert trials[0] == trials[1]


def test_the_report_is_made_from_the_database(database: Database) -> None:
    result = run(database, two())
    text = result.report()
    assert "conv" in text
    assert "dense" in text


def test_medians_are_those_of_the_finals(database: Database) -> None:
    tasks = two()
    result = run(database, tasks)
    final = decision(database, tasks[0].kernel.key, **UNDER).final
    assert final is not None
    assert result.kernels[0].best_s == median(final.paired.tuned_s)

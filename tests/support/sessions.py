"""Whole runs over kernels with toy spaces, on a device that computes times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from hlotune.codegen.built import Built
from hlotune.costmodel.model import CostModel
from hlotune.hlo.kernel import Kernel
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.measure.verification.agreement import Agreement
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Properties, Toolchain
from hlotune.search.budget.limits import Limits
from hlotune.search.experience import Experience
from hlotune.search.finals.comparing import ANY, AS_DEFAULT, Expected, Within
from hlotune.search.finals.finals import Keep, keep_nothing
from hlotune.search.finals.form_costs import FormCosts
from hlotune.search.finals.forms import Compared
from hlotune.search.progress import Event
from hlotune.search.result import TuneResult
from hlotune.search.resume_queries import passed_s
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.session import Session
from hlotune.search.tasks import Skipped, Task
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.finals import Final, Paired, Whole
from tests.support.quadratic import Quadratic
from tests.support.toy import ToySpace

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
Objects = Sequence[tuple[Candidate, Built | Failure]]


@dataclass(frozen=True)
class Identity:
    """The identity of a program, and of a site."""

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
class FakeDevice(CompilesNothing):
    """Builder and runner.  `default_s` is by label; Ctrl-C comes at request `interrupt_at`."""

    tasks: Sequence[Task]
    default_s: dict[str, float] = field(default_factory=dict)
    interrupt_at: int = -1
    wrong: bool = False
    off_by: float | None = None
    """How far every candidate is off, over the largest value, though it only reorders sums."""
    failing: frozenset[Schedule | None] = frozenset()
    """Wrong when they meet the default, whatever they were before."""
    requests: int = 0
    elapsed_s: float = 0.0

    def now(self) -> float:
        """A clock that goes on by a twentieth of a second with each request."""
        return self.elapsed_s

    def _request(self) -> None:
        self.requests += 1
        self.elapsed_s += 0.05
        if self.requests - 1 == self.interrupt_at:
            raise KeyboardInterrupt

    def _task(self, kernel: Kernel) -> Task:
        return next(t for t in self.tasks if t.kernel == kernel)

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [BUILT for _ in candidates]

    def measure(
        self,
        kernel: Kernel,
        objects: Objects,
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        self._request()
        found = Measurement(samples_s=(1.0,), numerics="strict", relative_error=self.off_by)
        return [Trial(c, replace(found, samples_s=(self._time_s(c),))) for c, _ in objects]

    def default(self, kernel: Kernel) -> Measurement:
        self._request()
        time_s = self.default_s.get(self._task(kernel).label, 6e-3)
        if time_s < 0:
            raise ProgramError("expected XLA to compile the kernel, got a crash; leave it out")
        return Measurement(samples_s=(time_s,))

    def compare(
        self,
        kernel: Kernel,
        objects: Objects,
        *,
        pairs: int,
        staying: int | None = None,
    ) -> Comparison:
        return self.final(kernel, objects, pairs)

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        """What a comparison gives, for devices of other finals to say."""
        default = Measurement(samples_s=self.default(kernel).samples_s * pairs)
        if self.wrong:
            wrong = Failure("wrong_result", "a lost tap")
            return Comparison(default, tuple(wrong for _ in objects))
        return Comparison(default, tuple(self._met(c, pairs) for c, _ in objects))

    def _met(self, candidate: Candidate, pairs: int) -> Measurement | Failure:
        if candidate.schedule in self.failing:
            return Failure("wrong_result", "a lost tap")
        samples_s = (self._time_s(candidate),) * pairs
        return Measurement(samples_s=samples_s, numerics="strict", relative_error=self.off_by)

    def _time_s(self, candidate: Candidate) -> float:
        space: Any = self._task(candidate.kernel).space
        return float(space.times_s(space.locate(candidate.schedule)[None])[0])


class Lucky(FakeDevice):
    """The slower a candidate is, the faster the search thinks that it is."""

    def measure(self, *arguments: Any, **named: Any) -> list[Trial]:
        trials = super().measure(*arguments, **named)
        times_s = [1e-9 / (t.time_s or 1.0) for t in trials]
        return [
            Trial(t.candidate, Measurement(samples_s=(s,)))
            for t, s in zip(trials, times_s, strict=True)
        ]


@dataclass
class FakeProgram:
    """The whole program, to be compared by a function; preparing and comparing take so long."""

    compared: Callable[[], Whole | None] = lambda: WHOLE
    device: FakeDevice | SimulatedDevice | None = None
    preparing_s: float = 0.0
    comparing_s: float = 0.0
    """But for the seconds of `timing_s`, which a limit may cut."""
    timing_s: float = 0.0
    proving_s: float = 0.0
    """What comparing two forms takes at least, but for `comparing_s`."""
    oracle_limits_s: list[float] = field(default_factory=list)
    is_long: bool = False
    with_undecided: Callable[[Mapping[str, Final]], Whole | None] = lambda also: None
    """Compares the program with the champions of undecided kernels too."""
    faster_with: Callable[[Sequence[str], Sequence[str]], bool | Compared] = lambda base, more: (
        False
    )
    """Whether the program is faster with further champions, beside some that were undecided."""

    def prepare(self, oracle_limit_s: float) -> None:
        self.oracle_limits_s.append(oracle_limit_s)
        self._take(self.preparing_s)

    def due_s(
        self, timing_s: float, expected: Expected = AS_DEFAULT, within: Within = ANY
    ) -> float:
        return self.comparing_s + min(timing_s, self.timing_s)

    def form_costs(self, confidence: float, expected: Expected = AS_DEFAULT) -> FormCosts:
        most_s = max(self.proving_s, self.timing_s)
        return FormCosts(self.comparing_s, min(max(1.0, self.proving_s), most_s), most_s)

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        if not self.oracle_limits_s and oracle_limit_s is not None:
            self.prepare(oracle_limit_s)
        self._take(self.comparing_s + min(limit_s, self.timing_s))
        return self.with_undecided(also) if also else self.compared()

    def is_faster(
        self,
        base: Mapping[str, Final],
        more: Mapping[str, Final],
        confidence: float,
        limit_s: float,
        oracle_limit_s: float | None = None,
    ) -> Compared | None:
        if limit_s < self.proving_s:
            return None
        self._take(self.comparing_s + min(limit_s, max(self.timing_s, self.proving_s)))
        found = self.faster_with(tuple(base), tuple(more))
        if isinstance(found, Compared):
            return found
        return Compared(is_faster=found, standing=frozenset({*base, *more}))

    def _take(self, seconds: float) -> None:
        if self.device is not None:
            self.device.elapsed_s += seconds


def run(
    database: Database,
    tasks: Sequence[Task],
    device: FakeDevice | SimulatedDevice | None = None,
    *,
    limits: Limits | None = None,
    skipped: Sequence[Skipped] = (),
    events: list[Event] | None = None,
    seed: int = 0,
    searcher: str = "annealing",
    compare_whole: Callable[[], Whole | None] = lambda: WHOLE,
    resume: str | None = None,
    turns: Turns | None = None,
    whole: FakeProgram | None = None,
    away_s: float = 0.0,
    probe: Callable[[], float] = lambda: 0.0,
    others_share: float | None = None,
    model: CostModel | None = None,
    default_errors: Mapping[str, float] | None = None,
    wrong_default: str = "",
    keep: Keep = keep_nothing,
    places: Sequence[Any] = (),
) -> TuneResult:
    """A run by the device's clock; `resume` is the id of one that was interrupted.

    `default_errors`: of the results of defaults, by label.
    """
    device, limits = device or FakeDevice(tasks), limits or Limits(trials=96)
    before_s = passed_s(database, resume) if resume else 0.0
    session = Session(
        database=database,
        run=resume or started(database, tasks, limits, seed),
        under=UNDER,
        target=TARGET,
        peaks=lambda: PROPERTIES,
        builder=device,
        runner=device,
        experience=Experience(model or Quadratic()),
        make=SEARCHERS[searcher],
        seed=seed,
        numerics="standard",
        progress=([] if events is None else events).append,
        limits=limits,
        whole=whole or FakeProgram(compare_whole),
        start_s=device.now() - before_s,
        now=device.now,
        away=lambda: away_s,
        probe=probe,
        others=lambda: others_share,
        agreement=lambda kernel: agreed(default_errors or {}, tasks, kernel),
        wrong_default=lambda: wrong_default,
        keep=keep,
        places=places,
        turns=turns or Turns(),
        resumed=resume is not None,
    )
    return session.finished(session.tuned("toy", tasks, skipped))


def agreed(errors: Mapping[str, float], tasks: Sequence[Task], kernel: Kernel) -> Agreement | None:
    label = next(t.label for t in tasks if t.kernel == kernel)
    return Agreement(errors[label], 0.01) if label in errors else None


def started(
    database: Database,
    tasks: Sequence[Task],
    limits: Limits,
    seed: int,
    program: Identity = PROGRAM,
) -> str:
    """The id of a new run, with options as `tune run` has them."""
    options = {
        "searcher": "annealing",
        "model": "trees",
        "model_digest": None,
        "trials": limits.trials,
        "budget_s": limits.seconds,
    }
    return database.start_run(
        program,
        TARGET,
        TOOLS,
        sites=map(place, tasks),
        properties=PROPERTIES,
        options=options,
        seed=seed,
    )


def two() -> tuple[Task, Task]:
    return task("conv", 1), task("dense", 2, weight=3)

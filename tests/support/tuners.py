"""A tuner of one kernel with a toy space, on a builder and a runner that compute times."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from hlotune.codegen.built import Built
from hlotune.costmodel.model import CostModel
from hlotune.hlo.kernel import Kernel
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split
from hlotune.search.experience import Experience
from hlotune.search.searchers.annealing import Annealing
from hlotune.search.searchers.descent import Descent
from hlotune.search.tuner import KernelTuner, Predicted
from tests.support.quadratic import Quadratic
from tests.support.toy import ToySpace, heuristic_first

KERNEL = Kernel("func.func @kernel() { toy }")


BUILT = Built(b"object", 0, (), 1, 1)


class FakeBuilder:
    """Fails every candidate whose last factor is `unbuildable`."""

    def __init__(self, unbuildable: int = 0) -> None:
        self.unbuildable = unbuildable

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [
            Failure("build", "unbuildable") if factors(c)[-1] == self.unbuildable else BUILT
            for c in candidates
        ]


class FakeRunner(CompilesNothing):
    """Times by the space's formula.  The power fails at trial `dies_at`."""

    def __init__(
        self, space: ToySpace, dies_at: int = 0, lax_from: int = 99, plain: Numerics = "standard"
    ) -> None:
        self.space, self.dies_at, self.lax_from, self.plain = space, dies_at, lax_from, plain
        self.hangs = False
        self.limits_s: list[float | None] = []

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        self.limits_s.append(limit_s)
        if len(self.limits_s) == self.dies_at:
            raise KeyboardInterrupt
        return [
            Trial(c, built if isinstance(built, Failure) else self._time(c)) for c, built in objects
        ]

    def _time(self, candidate: Candidate) -> Outcome:
        if self.hangs:
            return Failure("timeout", "no answer")
        config = self.space.locate(candidate.schedule)
        assert config is not None
        numerics = "fast" if factors(candidate)[0] >= self.lax_from else self.plain
        time_s, off_by = self.space.times_s(config[None])[0], 1e-6 * factors(candidate)[0]
        return Measurement(samples_s=(time_s,), numerics=numerics, relative_error=off_by)


def factors(candidate: Candidate) -> tuple[int, ...]:
    step = candidate.schedule.steps[0]
    assert isinstance(step, Split)
    return step.factors


@dataclass
class Log:
    """A database of one kernel and one run."""

    trials: list[Trial] = field(default_factory=list)
    batch: int = 0
    state: bytes = b""
    predicted: list[float | None] = field(default_factory=list)

    def record(
        self, trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
    ) -> None:
        self.trials += trials
        self.batch, self.state = batch, state
        self.predicted += predicted or [None] * len(trials)

    @property
    def schedules(self) -> list[Schedule]:
        return [t.candidate.schedule for t in self.trials]


def tuner(
    log: Log,
    space: ToySpace,
    *,
    runner: FakeRunner | None = None,
    builder: FakeBuilder | None = None,
    seed: int = 0,
    numerics: Numerics = "standard",
    most_error: float = inf,
    model: CostModel | None = None,
) -> KernelTuner:
    model = model or Quadratic()
    entropy = (seed, 7)
    return KernelTuner(
        KERNEL,
        space,
        searcher=Annealing(space, model, entropy, heuristic_first(space), chains=128, steps=6),
        finisher=Descent(space, model, entropy, heuristic_first(space)),
        experience=Experience(model),
        group=0,
        builder=builder or FakeBuilder(),
        runner=runner or FakeRunner(space),
        record=log.record,
        numerics=numerics,
        is_exact=lambda found: (
            found.numerics != "strict" or (found.relative_error or 0) <= most_error
        ),
    )


def space() -> ToySpace:
    return ToySpace((10,) * 6, seed=11)


def steps(tuning: KernelTuner, count: int, n: int = 32) -> None:
    for _ in range(count):
        tuning.step(n)

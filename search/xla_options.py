"""Searches the options of XLA for a whole program: each trial in a process of its own.

What an option does to XLA, it does to the process at worst, so that no trial can end the run.  The
default to beat in searches of kernels stays XLA by itself; reports show what is found here beside
it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from hlotune.codegen.built import Built
from hlotune.costmodel.pretrained import untrained
from hlotune.hlo.canonical import without_values
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.kernel import Kernel
from hlotune.measure.compiles_nothing import CompilesNothing
from hlotune.measure.timing.comparison import speedup
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.xla_options.space import OptionsSpace, options_of
from hlotune.schedules.spaces.xla_options.table import Value
from hlotune.schedules.targets.target import Target, Toolchain
from hlotune.search.budget.limits import Limits
from hlotune.search.experience import Experience
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.tuner import KernelTuner, Predicted, Step
from hlotune.tuning_logs.best_options import SPACE
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired, Summary
from hlotune.tuning_logs.render import time_text

PAIRS, FINAL_PAIRS = 8, 30
BATCH = 8
FINAL_TRIALS = 2.0
"""The last comparison takes as long as so many trials: most of both is a process and compiling."""


@dataclass(frozen=True, slots=True)
class Both:
    """Seconds of a program as XLA compiles it by itself, and with some options, in pairs."""

    default_s: tuple[float, ...]
    tried_s: tuple[float, ...]


Ask = Callable[[Mapping[str, Value], int], Both | Failure]
"""Checks and times a program with some options of XLA beside the default, in so many pairs."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search of options ends with."""

    run: str
    trials: int
    failures: int
    options: Mapping[str, Value]
    """The best ones; none where no trial succeeded."""
    final: Final | None


def whole_kernel(program: Program) -> Kernel:
    """A program as what trials of options are recorded under: equal to no kernel of a site.

    Weights are zeros in its text, for which the program's key stands beside it.
    """
    text = without_values(program.graph)
    said = f"// the whole program {program.key}; zeros stand for its large constants"
    return Kernel(f"{text}\n{said}\n")


class Trials(CompilesNothing):
    """Builder and runner of trials: a process of its own compiles each, and nothing is built."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        return [Built(b"", 0, (), 0, 1) for _ in candidates]

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        return [Trial(c, self._outcome(c, cache)) for c, _ in objects]

    def _outcome(self, candidate: Candidate, cache: CacheMode) -> Measurement | Failure:
        found = self._ask(options_of(candidate.schedule), PAIRS)
        if isinstance(found, Failure):
            return found
        return Measurement(samples_s=found.tried_s, clock="call", cache=cache, numerics="standard")


def search_options(
    program: Program,
    database: Database,
    ask: Ask,
    *,
    limits: Limits,
    searcher: str,
    seed: int,
    target: Target,
    toolchain: Toolchain,
    numerics: Numerics = "standard",
    tell: Callable[[str], object] = lambda text: None,
    now: Callable[[], float] = time.monotonic,
) -> Found:
    """Makes so many trials, records them, and compares the best options with the default.

    Where seconds are limited, there are as many trials as leave time for that comparison, and one
    at least.  `tell` is told what was found, in words, after each batch.
    """
    start_s, kernel = now(), whole_kernel(program)
    options = {
        "space": SPACE, "searcher": searcher, "trials": limits.trials, "budget_s": limits.seconds,
    }  # fmt: skip
    run = database.start_run(
        program, target, toolchain, numerics=numerics, options=options, seed=seed
    )
    tuner = _tuner(kernel, database, run, ask, searcher, seed, target)
    made = failures = 0
    for step in _steps(tuner, limits, lambda: now() - start_s):
        made, failures = made + len(step.trials), failures + step.failures
        fastest = time_text(step.best_s if isfinite(step.best_s) else None)
        of = f" of {limits.trials}" if limits.trials else ""
        tell(f"trial {made}{of}, {failures} failed: best {fastest}")
    best = next(iter(tuner.champions(1)), None)
    final = _final(best, ask) if best else None
    if final is not None:
        database.record_final(run, kernel, final)
    database.finish_run(run, Summary(wall_s=now() - start_s))
    chosen = options_of(final.schedule) if final else {}
    return Found(run, made, failures, chosen, final)


def _steps(tuner: KernelTuner, limits: Limits, passed_s: Callable[[], float]) -> Iterator[Step]:
    """Batches until the limit; where seconds are limited the first has one trial, which says how
    long others take.
    """
    made, most = 0, BATCH if limits.seconds is None else 1
    while True:
        left_s = inf
        if limits.seconds is not None and made:
            usual_s = passed_s() / made
            left_s = limits.seconds - passed_s() - FINAL_TRIALS * usual_s
            most = min(BATCH, int(left_s / usual_s))
        wanted = most if limits.trials is None else min(most, limits.trials - made)
        if wanted < 1 or (step := tuner.step(wanted, limit_s=left_s)) is None:
            return
        made += len(step.trials)
        yield step


def _tuner(
    kernel: Kernel, database: Database, run: str, ask: Ask, searcher: str, seed: int, target: Target
) -> KernelTuner:
    space, model = OptionsSpace(target.kind), untrained("roofline", "").model
    worker, make = Trials(ask), SEARCHERS[searcher]

    def record(
        trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
    ) -> None:
        database.add(run, kernel, trials, batch=batch, state=state)

    return KernelTuner(
        kernel,
        space,
        searcher=make(space, model, (seed, int(kernel.key, 16)), space.firsts()),
        finisher=None,
        experience=Experience(model),
        group=0,
        builder=worker,
        runner=worker,
        record=record,
    )


def _final(best: Trial, ask: Ask) -> Final | None:
    """The best options against the default; None where they fail now."""
    found = ask(options_of(best.candidate.schedule), FINAL_PAIRS)
    if isinstance(found, Failure):
        return None
    ratio = speedup(found.default_s, found.tried_s)
    return Final(
        schedule=best.candidate.schedule,
        numerics="standard",
        paired=Paired.of(found.default_s, found.tried_s, ratio),
        outcome="tuned" if ratio.is_faster else "kept default",
        margin=ratio.low - 1.0,
    )

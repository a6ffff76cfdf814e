"""A program on XLA, tuned, and on other runtimes, timed in turns on the same arrays."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.accuracy import Accuracy, Judge
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.bench import Prepared
from hlotune.deploy.rivals.process import RivalError, RivalProcess
from hlotune.deploy.rivals.runtimes import RUNTIMES, Runtime
from hlotune.deploy.timer import Timer
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.affinity import pinned
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import ratio
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import Numerics

ROUNDS, FEWEST_ROUNDS = 21, 6
WARM_CALLS = 2
SAMPLE_S = 0.02
"""Calls shorter than this are timed several at a time."""
REST_S = 0.05
"""Between samples: threads of runtimes look for work for a while after a call."""
NUMERICS: Numerics = "fast"
"""How far from exact the results of other runtimes may be: they know no other setting."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One contestant: its samples, or why it has none."""

    name: str
    version: str = ""
    samples_s: tuple[float, ...] = ()
    """Seconds of a call; sample i of each contestant is of the same round."""
    accuracy: tuple[Accuracy, ...] = ()
    absent: str | None = None

    def to_json(self, default_s: Sequence[float]) -> dict[str, Any]:
        found = ratio(default_s, self.samples_s) if self.samples_s else None
        bounds = (found.median, found.low, found.high) if found else (None, None, None)
        speedup, low, high = (x if x is not None and math.isfinite(x) else None for x in bounds)
        return {
            "name": self.name,
            "version": self.version or None,
            "time_s": median(self.samples_s) if self.samples_s else None,
            "samples_s": list(self.samples_s),
            "speedup": speedup,
            "speedup_low": low,
            "speedup_high": high,
            "absent": self.absent,
            "accuracy": [a.to_json() for a in self.accuracy],
        }


@dataclass(slots=True)
class Entrant:
    name: str
    version: str
    sample_s: Callable[[int, int], float]
    """Seconds of a call, of how many to warm up and how many to time."""
    accuracy: tuple[Accuracy, ...] = ()
    calls: int = 1
    samples_s: list[float] = field(default_factory=list)


def contested(
    ready: Prepared,
    tuned: TunedFunction,
    *,
    runtimes: Sequence[Runtime] = tuple(RUNTIMES.values()),
    limit_s: float = 60.0,
    turns: Turns | None = None,
) -> list[Standing]:
    """XLA, the tuned program, then each runtime; one that has no time says why.

    Each runtime reads the ONNX model of the program in a process of its own, gets as many threads
    as the target has, and its results are held against the oracle's before it is timed.
    """
    turns, program = turns or Turns(), ready.program
    timer = Timer(program, ready.inputs, tuned.target, limit_s, turns)

    def own(function: Callable[..., Any], warm: int, calls: int) -> float:
        timer.sample(function, warm)
        return timer.sample(function, calls)

    entrants = [
        Entrant("XLA", "", partial(own, ready.default)),
        Entrant("hlotune", "", partial(own, tuned)),
    ]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hlotune-rivals-")))
        stack.enter_context(turns.alone())
        found = [_entered(r, ready, tuned, folder, stack) for r in runtimes]
        entrants += [x for x in found if isinstance(x, Entrant)]
        with pinned(tuned.target.host_threads):
            _timed(entrants, timer)
    absent = [x for x in found if isinstance(x, Standing)]
    standings = [Standing(e.name, e.version, tuple(e.samples_s), e.accuracy) for e in entrants]
    return [*standings, *absent]


def _entered(
    runtime: Runtime, ready: Prepared, tuned: TunedFunction, folder: Path, stack: ExitStack
) -> Entrant | Standing:
    if runtime.absent:
        return Standing(runtime.name, absent=runtime.absent)
    try:
        model = folder / "model.onnx"
        if not model.exists():
            written(ready.program, model)
        arrays = arrays_of(ready.program, ready.inputs.values)
        threads = tuned.target.host_threads
        process = stack.enter_context(RivalProcess(runtime, model, arrays, threads))
    except (ProgramError, RivalError) as error:
        return Standing(runtime.name, absent=str(error))
    judge = next(j for j in ready.judges if j.inputs is ready.inputs)
    accuracy = verdicts(judge, process.results)
    wrong = next((a.wrong for a in accuracy if a.wrong), None)
    if wrong:
        return Standing(runtime.name, process.version, (), accuracy, f"wrong results: {wrong}")
    return Entrant(runtime.name, process.version, process.sample_s, accuracy)


def written(program: Program, path: Path) -> None:
    """The ONNX model of a program as a file.

    Raises ProgramError where the package onnx is not there, or an operation cannot be written.
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ProgramError(
            "expected the package onnx to write a model, got none; install it: "
            "pip install 'hlotune[onnx]'"
        ) from None
    from hlotune.deploy.to_onnx.model import model_of, save

    save(model_of(program), path)


def arrays_of(program: Program, values: Sequence[Any]) -> Mapping[str, NDArray[Any]]:
    """The arguments by the names that the model has for them."""
    from hlotune.deploy.to_onnx.model import input_names

    kinds = program.graph.argument_types
    arrays = [np.asarray(x, numpy_dtype(t.dtype)) for x, t in zip(values, kinds, strict=True)]
    return dict(zip(input_names(program), arrays, strict=True))


def verdicts(judge: Judge, results: Sequence[NDArray[Any]]) -> tuple[Accuracy, ...]:
    """What a judge says of results that were made elsewhere of its inputs."""
    return tuple(judge.judge(lambda *_, **__: list(results), NUMERICS))


def _timed(entrants: Sequence[Entrant], timer: Timer) -> None:
    """Rounds in which the first to be timed is another one each time."""
    for e in entrants:
        e.calls = max(1, math.ceil(SAMPLE_S / e.sample_s(WARM_CALLS, 1)))
    for number in range(ROUNDS):
        if timer.is_over and number >= FEWEST_ROUNDS:
            break
        first = number % len(entrants)
        for e in (*entrants[first:], *entrants[:first]):
            time.sleep(REST_S)
            e.samples_s.append(e.sample_s(WARM_CALLS, e.calls))

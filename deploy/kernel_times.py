"""The replaced kernels of a program against their defaults again: each by itself, and today.

What a record says is of the minutes of its run, and of another process.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.deploy.apply import TunedFunction
from hlotune.hlo.kernel import Kernel
from hlotune.measure.comparison import Comparison, ratio
from hlotune.measure.runner import ProcessRunner
from hlotune.measure.trial import Candidate, Failure
from hlotune.schedules.errors import ProgramError
from hlotune.tuning_logs.finals import Paired

PAIRS = 31
"""As many as a final has."""
TIMING_S = 1.5
"""For the pairs of one kernel; checking it and compiling its default come before."""


class Comparing(Protocol):
    """The part of a runner that is needed."""

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        limit_s: float,
    ) -> Comparison:
        """Raises ProgramError where the default cannot be timed."""
        ...


def timed_again(tuned: TunedFunction, tell: Callable[[str], object]) -> dict[str, Paired | Failure]:
    """By the key of each kernel that was put in: both timed in turns, or why they were not.

    As a final does it: in a worker process, thoroughly verified first, by the clock `kernel` and in
    the cache mode `model`.  `tell` is told what comes next, in words.
    """
    with ProcessRunner(tuned.target, tuned.numerics) as runner:
        return timed_by(runner, tuned, tell)


def timed_by(
    runner: Comparing, tuned: TunedFunction, tell: Callable[[str], object]
) -> dict[str, Paired | Failure]:
    """As `timed_again`: each kernel once, however many places it has."""
    schedules = {e.site: e.schedule for e in tuned.explain()}
    labels, objects = dict[str, str](), dict[str, tuple[Candidate, Built]]()
    for r in tuned.replacements:
        schedule = schedules.get(r.site)
        if r.built is not None and schedule is not None:
            kernel = r.site.kernel
            labels[kernel.key] = r.site.label
            objects[kernel.key] = Candidate(kernel, schedule), r.built
    found = dict[str, Paired | Failure]()
    for number, (key, one) in enumerate(objects.items(), 1):
        tell(f"[{number}/{len(objects)}] {labels[key]}: comparing with its default")
        found[key] = _compared(runner, *one)
    return found


def _compared(runner: Comparing, candidate: Candidate, built: Built) -> Paired | Failure:
    objects = [(candidate, built)]
    try:
        comparison = runner.compare(candidate.kernel, objects, pairs=PAIRS, limit_s=TIMING_S)
    except ProgramError as error:
        return Failure("device", str(error))
    (outcome,) = comparison.candidates
    if isinstance(outcome, Failure):
        return outcome
    default_s, tuned_s = comparison.default.samples_s, outcome.samples_s
    speedup = ratio(default_s, tuned_s)
    return Paired(
        default_s=default_s,
        tuned_s=tuned_s,
        speedup=speedup.median,
        low=speedup.low,
        high=speedup.high,
    )

"""One kernel and its default, verified thoroughly and timed in turns."""

from collections.abc import Sequence
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison, speedup
from hlotune.measure.trial import Candidate, Failure
from hlotune.schedules.errors import ProgramError
from hlotune.tuning_logs.finals import Paired


class Referee(Protocol):
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


def compared(
    referee: Referee, candidate: Candidate, built: Built, *, pairs: int, limit_s: float
) -> Paired | Failure:
    """Both sides timed in turns, or why they were not.

    Args:
        limit_s: seconds of timing; verifying it and compiling its default come before.
    """
    objects = [(candidate, built)]
    try:
        comparison = referee.compare(candidate.kernel, objects, pairs=pairs, limit_s=limit_s)
    except ProgramError as error:
        return Failure("device", str(error))
    (outcome,) = comparison.candidates
    if isinstance(outcome, Failure):
        return outcome
    default_s, tuned_s = comparison.default.samples_s, outcome.samples_s
    return Paired.of(default_s, tuned_s, speedup(default_s, tuned_s))

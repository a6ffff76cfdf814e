"""The peaks of a target, as its worker measured them: asked for once, and again where they are
doubted.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.core_sharing_probe import NEVER_APART, say_never_apart
from hlotune.measure.timing.impossible_times import POSSIBLE, peak_type
from hlotune.measure.timing.timing import RESOLUTION_S
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.wire import from_target
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.target import Properties, Target


class KnownPeaks:
    """What a target reaches at most; measured in the worker, or what is known where that is more.

    Args:
        ask: sends a request to the worker.
        known: peaks that the target reached before: today's may be of a bad minute.
    """

    def __init__(
        self, target: Target, ask: Callable[[Message], Message | Failure], known: Properties | None
    ) -> None:
        self._target, self._ask, self._known = target, ask, known
        self._found: Properties | None = None
        self._doubted = False
        """Whether a call of a comparison beat the peaks."""
        self._is_due = False
        """Whether they are to be measured again when they are next asked for."""

    def properties(self) -> Properties:
        """The peaks; doubted ones are measured again.

        Raises ProgramError where they cannot be measured.
        """
        if self._is_due:
            self.measure_again()
        return self._as_known()

    def _as_known(self) -> Properties:
        if self._found is None:
            found = self._measured()
            if isinstance(found, Failure):
                raise ProgramError(
                    f"expected the peaks of {self._target.title}, got a {found.kind} "
                    f"({found.message}); check that the target is this machine"
                )
            self._found = found.best_of(self._known) if self._known else found
        return self._found

    def type_of(self, kernel: Kernel) -> str | None:
        """The type by whose peak a kernel is judged; None where one has no known peak."""
        return peak_type(kernel, self._target, self._as_known())

    def of(self, kernel: Kernel) -> float | None:
        dtype = self.type_of(kernel)
        return self._as_known().flops_per_s[dtype] if dtype else None

    def is_beaten(self, kernel: Kernel, built: Built, time_s: float) -> bool:
        """Whether a time is too short for the arithmetic of a kernel."""
        peak = self.of(kernel)
        return peak is not None and time_s + RESOLUTION_S < POSSIBLE * built.flops / peak

    def raise_to(self, dtype: str, *flops_per_s: float) -> None:
        """Takes rates that were reached for those of a peak, where they are above it."""
        known = self._as_known()
        peaks = {**known.flops_per_s, dtype: max(known.flops_per_s[dtype], *flops_per_s)}
        self._found = replace(known, flops_per_s=peaks)

    def doubt(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        found: Sequence[Outcome],
    ) -> None:
        """Doubts known peaks, once, where a verified kernel beats them call included: they are of a
        slow minute.  They are not measured again here, where the seconds would be the kernel's.
        """
        if self._found is None or self._doubted or (peak := self.of(kernel)) is None:
            return
        pairs = zip(objects, found, strict=True)
        self._doubted = any(
            isinstance(built, Built)
            and isinstance(x, Measurement)
            and built.flops > peak * x.time_s
            for (_, built), x in pairs
        )
        self._is_due = self._doubted

    def measure_again(self) -> None:
        """Measures the peaks again.  Known peaks stay where no worker measures them: a candidate
        ends no run.
        """
        self._is_due = False
        before, found = self._as_known(), self._measured(anew=True)
        if isinstance(found, Properties):
            self._found = before.best_of(found)

    def _measured(self, *, anew: bool = False) -> Properties | Failure:
        """`anew`: also where the worker has measured them before."""
        asked = {"do": "properties", "target": from_target(self._target), "anew": anew}
        reply = self._ask(Message(asked))
        if isinstance(reply, Failure):
            return reply
        header = dict(reply.header)
        if header.pop(NEVER_APART, False):
            say_never_apart()
        return Properties(**header)

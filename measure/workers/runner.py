"""Built kernels to trials: one worker verifies and times; whatever they do, the run goes on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import Comparison, outcomes
from hlotune.measure.timing.core_sharing_probe import ALONE_S
from hlotune.measure.timing.impossible_times import beats_peak, too_fast
from hlotune.measure.timing.sifting import Met
from hlotune.measure.timing.timing import (
    BRIEF_S,
    BRIEF_SHARE,
    DEFAULT_EFFORT,
    RESOLUTION_S,
    Effort,
)
from hlotune.measure.trial import CacheMode, Candidate, Clock, Failure, Measurement, Outcome, Trial
from hlotune.measure.verification.verify import Verdict
from hlotune.measure.workers.builder import TimedBuilt
from hlotune.measure.workers.early_start import DEVICE_WORKER
from hlotune.measure.workers.known_peaks import KnownPeaks
from hlotune.measure.workers.requests import LIMIT_S, DeviceRequests, Rounds, again_where_lost
from hlotune.measure.workers.wire import to_outcome
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import XLA
from hlotune.schedules.targets.target import Properties, Target

COMPARING_S = 6.0
"""How long the rounds of a comparison take in all: enough for a verdict about calls that take a
tenth of a second.
"""


class ProcessRunner(DeviceRequests):
    """Measures on one target.  The worker starts with the first request, if not before, and
    stays until `close`.
    """

    def __init__(
        self,
        target: Target,
        numerics: Numerics = "standard",
        cache: CacheMode = "model",
        clock: Clock = "kernel",
        effort: Effort = DEFAULT_EFFORT,
        turns: Turns | None = None,
        known: Properties | None = None,
        command: Sequence[str] = DEVICE_WORKER,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`effort` goes into each candidate of `measure`; defaults and finals have their own.

        `known` are peaks that the target reached before, as `KnownPeaks` has them.
        """
        super().__init__(target, numerics, cache, clock, turns, command, environment)
        self.effort = effort
        self._best_s: dict[tuple[str, CacheMode], float] = {}
        self._probes_s: list[float] = []
        self._peaks = KnownPeaks(target, self._ask_surely, known)

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        limit_s: float | None = None,
    ) -> list[Trial]:
        """One trial a candidate, in their order: first verified, then timed.

        Failures of the builder pass through; of the schedule `xla` the default is timed, whatever
        was built.

        Args:
            limit_s: seconds that one candidate may take in all before it is a failure `timeout`.
        """
        mode, limit = cache or self.cache, limit_s or LIMIT_S
        return [Trial(c, self._outcome(kernel, c, built, mode, limit)) for c, built in objects]

    @property
    def width(self) -> int:
        """Candidates that are measured at a time."""
        return 1

    def default(self, kernel: Kernel, *, cache: CacheMode | None = None) -> Measurement:
        """XLA's own time for the kernel alone, by the same clock.

        With constants, of the better of two forms: constants as operands, or in the program's text.

        Raises ProgramError where XLA does not compile or run the kernel.
        """
        mode = cache or self.cache
        reply = again_where_lost(lambda: self._ask("default", kernel, mode, timeout_s=LIMIT_S))
        outcome = reply if isinstance(reply, Failure) else to_outcome(dict(reply.header))
        if isinstance(outcome, Failure):
            raise ProgramError(
                f"expected XLA to compile and run kernel {kernel.key[:12]}, got a {outcome.kind} "
                f"({outcome.message}); leave this kernel out"
            )
        self._remember(kernel, outcome)
        return outcome

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int = 21,
        limit_s: float = COMPARING_S,
        cache: CacheMode | None = None,
        clock: Clock = "call",
        staying: int | None = None,
    ) -> Comparison:
        """The default against candidates that may win: verified thoroughly, then timed in turns.

        Times are of calls, as a user sees them: what a call costs is in those of both sides.

        Args:
            objects: those that stay, and then the simplest first.
            pairs: rounds; more where these are short beside the checks, as `timing.interleaved`
                has it.
            limit_s: seconds of timing after which no further round starts, once there are as many
                as prove anything of so many candidates (`comparison.fewest_pairs`).
            staying: so many of the first objects meet the default in any case; of the others the
                fastest alone does where there is time for few rounds (`sifting.py`).  Without it
                all do.

        Raises ProgramError where XLA does not compile or run the kernel.
        """
        mode, start_s = cache or self.cache, self._turns.clock_s()
        verdicts = self._verdicts(kernel, [built for _, built in objects], mode)
        checks_s = self._turns.clock_s() - start_s  # without waits for other tuners
        brief_s = max(BRIEF_S, BRIEF_SHARE * checks_s)
        if staying is not None:
            staying = sum(isinstance(v, Verdict) for v in verdicts[:staying])
        asked = Rounds(pairs, limit_s, brief_s, staying)
        reply = self._rounds(kernel, mode, clock, right(objects, verdicts), asked)
        if isinstance(reply, Failure):
            failed = tuple(v if isinstance(v, Failure) else reply for v in verdicts)
            return Comparison(self.default(kernel, cache=mode), failed)
        found = compared(verdicts, reply, clock, mode)
        self._peaks.doubt(kernel, objects, found.candidates)
        return found

    def properties(self) -> Properties:
        """Peaks of the target, measured in the worker, or what is known of it where that is more.

        Raises ProgramError where they cannot be measured.
        """
        return self._peaks.properties()

    def probe_s(self) -> float:
        """Median of the probe's times beside trials since the last call; 0 where there are none."""
        seen, self._probes_s = self._probes_s, []
        return median(seen) if seen else 0.0

    def _outcome(
        self,
        kernel: Kernel,
        candidate: Candidate,
        built: Built | Failure,
        cache: CacheMode,
        limit_s: float,
    ) -> Outcome:
        if candidate.schedule.algorithm == XLA:
            try:
                return self.default(kernel, cache=cache)
            except ProgramError as error:
                return Failure("device", str(error))
        if isinstance(built, Failure):
            return built
        outcome = self._timed(kernel, candidate, built, cache, limit_s)
        if self._impossible(kernel, built, outcome):
            self._peaks.measure_again()
            outcome = self._timed(kernel, candidate, built, cache, limit_s)
            if isinstance(outcome, Measurement) and self._impossible(kernel, built, outcome):
                outcome = self._believed(kernel, built, outcome)
        if isinstance(outcome, Measurement):
            self._remember(kernel, outcome)
        return outcome

    def _verdicts(
        self, kernel: Kernel, builts: Sequence[Built | Failure], cache: CacheMode
    ) -> list[Verdict | Failure]:
        """What is wrong with each built kernel, or how far it is off."""
        self.compile_together([(kernel, built) for built in builts], cache=cache)
        return [b if isinstance(b, Failure) else self.verify(kernel, b) for b in builts]

    def _timed(
        self, kernel: Kernel, candidate: Candidate, built: Built, cache: CacheMode, limit_s: float
    ) -> Outcome:
        extra = {
            "numerics": self.numerics,
            "best_s": self._best_s.get((kernel.key, cache)),
            "effort": asdict(self.effort),
        }
        reply = self._ask("measure", kernel, cache, extra, built.to_bytes(), timeout_s=limit_s)
        if isinstance(reply, Failure):
            return reply
        header = dict(reply.header)
        self._probes_s += header.pop(ALONE_S, [])
        outcome = to_outcome(header)
        if isinstance(outcome, Failure) or not isinstance(built, TimedBuilt):
            return outcome
        return replace(outcome, build_s=built.build_s)

    def _remember(self, kernel: Kernel, found: Measurement) -> None:
        place = kernel.key, found.cache
        self._best_s[place] = min(found.time_s, self._best_s.get(place, found.time_s))

    def _impossible(self, kernel: Kernel, built: Built, outcome: Outcome) -> bool:
        if isinstance(outcome, Failure) or self.clock != "kernel" or not built.flops:
            return False
        return self._peaks.is_beaten(kernel, built, outcome.time_s)

    def _believed(self, kernel: Kernel, built: Built, found: Measurement) -> Outcome:
        """A time above the peaks: a failure where it beats multiply-adds beside it, too.

        If it does not, other processes slowed down all peaks before, and what the kernel reached is
        one.
        """
        dtype = self._peaks.type_of(kernel) or ""
        try:
            beside = self.beside_peak(
                kernel, built, dtype, pairs=31, limit_s=1.0, cache=found.cache
            )
        except ProgramError:
            return too_fast(found, built, self._peaks.of(kernel))
        if beats_peak(beside, built.flops):
            return too_fast(found, built, self._peaks.of(kernel))
        reached = built.flops / (found.time_s + RESOLUTION_S)
        self._peaks.raise_to(dtype, *beside.work_per_s, reached)
        return found


def right(
    objects: Sequence[tuple[Candidate, Built | Failure]], verdicts: Sequence[Verdict | Failure]
) -> list[Built]:
    """The built candidates that were found right."""
    both = zip(objects, verdicts, strict=True)
    return [b for (_, b), v in both if isinstance(b, Built) and isinstance(v, Verdict)]


def compared(
    verdicts: Sequence[Verdict | Failure], met: Met, clock: Clock, cache: CacheMode
) -> Comparison:
    """The outcome of each candidate, those that were found wrong among them."""
    default_s, *candidates_s = met.samples_s
    default = Measurement(samples_s=default_s, clock=clock, cache=cache, numerics="strict")
    timed = [n for n, v in enumerate(verdicts) if isinstance(v, Verdict)]
    found = tuple(outcomes(verdicts, default, candidates_s))
    return Comparison(default, found, frozenset(timed[k] for k in met.behind))

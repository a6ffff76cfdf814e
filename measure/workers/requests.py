"""What the worker of a device is asked for, a request each: one place that knows their fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import Beside
from hlotune.measure.timing.sifting import Met
from hlotune.measure.trial import CacheMode, Clock, Failure
from hlotune.measure.verification.agreement import Agreement
from hlotune.measure.verification.verify import Verdict
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.early_start import device_environment, taken
from hlotune.measure.workers.wire import from_target, to_outcome
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target

LIMIT_S = 60.0
"""The seconds that a request may take, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How many rounds of samples a comparison has, and of whom, as `sifting.met` takes it."""

    pairs: int
    limit_s: float
    brief_s: float
    staying: int | None = None


class DeviceRequests:
    """A worker that owns a device, and the requests that it answers.  It starts with the first one,
    if not before, and stays until `close`.
    """

    def __init__(
        self,
        target: Target,
        numerics: Numerics,
        cache: CacheMode,
        clock: Clock,
        turns: Turns | None,
        command: Sequence[str],
        environment: Mapping[str, str] | None,
    ) -> None:
        """`environment` has further variables, such as those that choose a device."""
        self._turns = turns or Turns()
        self.target = target
        self.numerics = numerics
        self.cache = cache
        self.clock = clock
        self._channel = taken(command, {**device_environment(target), **(environment or {})})

    def begin(self) -> None:
        """Starts the worker and does not wait for it."""
        self._channel.begin()

    def compile_together(
        self,
        objects: Sequence[tuple[Kernel, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        spread: bool = False,
    ) -> None:
        """Has the worker of a device other than a CPU compile what was built of kernels, and their
        defaults, at the same time.

        Where that ends the worker, each is compiled alone: the one that did it fails then.

        Args:
            spread: whether `measure` is called with them next, in this order: of several devices
                each compiles those that it will measure.
        """
        right = [(k, b.to_bytes()) for k, b in objects if isinstance(b, Built)]
        if isinstance(self.target, CpuTarget) or len(right) < 2:
            return
        kernels, blobs = zip(*right, strict=True)
        extra = {"kernels": [k.text for k in kernels], "sizes": [len(b) for b in blobs]}
        mode, blob = cache or self.cache, b"".join(blobs)
        self._ask("compile", kernels[0], mode, extra, blob, timeout_s=LIMIT_S)

    def verify(self, kernel: Kernel, built: Built) -> Verdict | Failure:
        """Whether a built kernel is right, looked at as closely as a winner."""
        extra = {"numerics": self.numerics, "thorough": True}
        reply = self._ask("verify", kernel, self.cache, extra, built.to_bytes(), timeout_s=LIMIT_S)
        if isinstance(reply, Failure):
            return reply
        if (failure := failure_of(reply)) is not None:
            return failure
        return Verdict(**{k: v for k, v in reply.header.items() if k != "is"})

    def agreement(self, kernel: Kernel) -> Agreement | None:
        """How far XLA's own result of a kernel is off; None where nobody can say."""
        reply = self._ask("agreement", kernel, self.cache, timeout_s=LIMIT_S)
        if isinstance(reply, Failure) or reply.header["is"] != "agreement":
            return None
        fields = {k: v for k, v in reply.header.items() if k != "is"}
        return Agreement(**fields) if fields else None

    def _rounds(
        self,
        kernel: Kernel,
        cache: CacheMode,
        clock: Clock,
        builts: Sequence[Built],
        asked: Rounds,
    ) -> Met | Failure:
        """Samples of the default and of each built kernel."""
        blobs = [built.to_bytes() for built in builts]
        sizes = [len(b) for b in blobs]
        extra = {"clock": clock, "sizes": sizes, **asdict(asked)}
        timeout_s = LIMIT_S + 4 * asked.limit_s
        reply = self._ask("compare", kernel, cache, extra, b"".join(blobs), timeout_s=timeout_s)
        if isinstance(reply, Failure):
            return reply
        if (failure := failure_of(reply)) is not None:
            return failure
        samples_s = tuple(map(tuple, reply.header["samples_s"]))
        return Met(samples_s, tuple(reply.header["behind"]))

    def beside_peak(
        self, kernel: Kernel, built: Built, dtype: str, *, pairs: int = 101, limit_s: float = 5.0,
        cache: CacheMode | None = None,
    ) -> Beside:  # fmt: skip
        """A kernel in turns with multiply-adds of its operands' type in registers, verified or not.

        By the clock `kernel`, for some two seconds: shares of shorter times were up to a tenth
        apart, as a machine's neighbours came and went.  Raises ProgramError where either does not
        run.
        """
        extra = {"dtype": dtype, "pairs": pairs, "limit_s": limit_s}
        return self._beside(kernel, built, f"multiply-adds of {dtype}", extra, cache)

    def beside_read(
        self, kernel: Kernel, built: Built, size: int, *, pairs: int = 101, limit_s: float = 5.0,
        cache: CacheMode | None = None,
    ) -> Beside:  # fmt: skip
        """The same with a plain read of about `size` bytes, of which each thread reads a part."""
        extra = {"bytes": size, "pairs": pairs, "limit_s": limit_s}
        return self._beside(kernel, built, f"a read of {size} bytes", extra, cache)

    def _beside(
        self, kernel: Kernel, built: Built, what: str, extra: dict[str, Any],
        cache: CacheMode | None,
    ) -> Beside:  # fmt: skip
        mode, timeout_s = cache or self.cache, LIMIT_S + 4 * extra["limit_s"]
        reply = self._ask("beside", kernel, mode, extra, built.to_bytes(), timeout_s=timeout_s)
        failure = reply if isinstance(reply, Failure) else failure_of(reply)
        if failure is not None:
            raise ProgramError(
                f"expected kernel {kernel.key[:12]} to run beside {what}, got a {failure.kind} "
                f"({failure.message}); leave its share of that out"
            )
        header = cast(Message, reply).header
        return Beside(tuple(header["samples_s"]), tuple(header["work_per_s"]))

    def forget(self) -> None:
        """Has the worker free what it keeps of the last kernels, several times their operands.

        It makes that again where one of them comes back.
        """
        with self._turns.alone():
            self._channel.request(Message({"do": "forget"}), LIMIT_S)

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        do: str,
        kernel: Kernel,
        cache: CacheMode,
        extra: dict[str, Any] | None = None,
        blob: bytes = b"",
        *,
        timeout_s: float,
    ) -> Message | Failure:
        header = {
            "do": do,
            "kernel": kernel.text,
            "target": from_target(self.target),
            "cache": cache,
            "clock": self.clock,
            **(extra or {}),
        }
        with self._turns.alone():
            return self._channel.request(Message(header, blob), timeout_s)

    def _ask_surely(self, request: Message) -> Message | Failure:
        """Asks a second time where the machine took the worker away."""
        with self._turns.alone():
            return again_where_lost(lambda: self._channel.request(request, LIMIT_S))


def again_where_lost(ask: Callable[[], Message | Failure]) -> Message | Failure:
    """Asks a second time where the machine took the worker away, which no candidate did."""
    reply = ask()
    return ask() if isinstance(reply, Failure) and reply.kind == "device" else reply


def failure_of(reply: Message) -> Failure | None:
    outcome = to_outcome(dict(reply.header)) if reply.header["is"] == "failure" else None
    return outcome if isinstance(outcome, Failure) else None

"""Candidates to machine code, in processes of their own: whatever LLVM does, the run goes on."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from queue import SimpleQueue
from typing import Self, cast

from hlotune.codegen.built import Built
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.trial import Candidate, Failure
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.early_start import BUILD_ENVIRONMENT, BUILD_WORKER, builders_for, taken
from hlotune.measure.workers.wire import from_candidate, from_target, to_outcome
from hlotune.schedules.errors import BuildError
from hlotune.schedules.steps.schedule import XLA
from hlotune.schedules.targets.target import Target


@dataclass(frozen=True)
class TimedBuilt(Built):
    """A kernel as machine code, and the seconds that building it took."""

    build_s: float = 0.0


class ProcessBuilder:
    """Builds for one target.  Processes start with the first batch, if not before, and stay until
    `close`.
    """

    def __init__(
        self,
        target: Target,
        processes: int | None = None,
        timeout_s: float = 10.0,
        command: Sequence[str] = BUILD_WORKER,
        turns: Turns | None = None,
    ) -> None:
        self._target = target
        self._turns = turns or Turns()
        self._timeout_s = timeout_s
        self._all = [
            taken(command, BUILD_ENVIRONMENT) for _ in range(processes or builders_for(target))
        ]
        self._idle: SimpleQueue[Channel] = SimpleQueue()
        for channel in self._all:
            self._idle.put(channel)

    def begin(self) -> None:
        """Starts the processes and does not wait for them."""
        for channel in self._all:
            channel.begin()

    def settle(self) -> None:
        """Waits until those that were begun keep no processor busy."""
        for channel in self._all:
            channel.settle()

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        """One outcome a candidate, in their order.  Waits while another tuner measures."""
        with self._turns.alone(), ThreadPoolExecutor(len(self._all)) as threads:
            try:
                return list(threads.map(self._one, candidates))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    def close(self) -> None:
        for channel in self._all:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, candidate: Candidate) -> Built | Failure:
        if candidate.schedule.algorithm == XLA:
            return Failure(
                "schedule", "the default compiler's kernel is not built; the runner times it"
            )
        request = {
            "do": "build",
            "target": from_target(self._target),
            "candidate": from_candidate(candidate),
        }
        channel = self._idle.get()
        try:
            reply = channel.request(Message(request), self._timeout_s)
        finally:
            self._idle.put(channel)
        return reply if isinstance(reply, Failure) else _outcome(reply)


def _outcome(reply: Message) -> Built | Failure:
    if reply.header["is"] != "built":
        return cast(Failure, to_outcome(dict(reply.header)))
    try:
        built = Built.from_bytes(reply.blob)
        values = {field.name: getattr(built, field.name) for field in fields(built)}
        return TimedBuilt(**values, build_s=reply.header.get("build_s", 0.0))
    except BuildError as error:
        return Failure("build", str(error))

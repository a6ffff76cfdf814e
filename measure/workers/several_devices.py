"""Several devices of one kind, measured at the same time: a worker and a lock for each."""

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.trial import CacheMode, Candidate, Failure, Trial
from hlotune.measure.workers.early_start import DEVICE_WORKER
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Properties, Target

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees, and which is its first."""


class SeveralDevices(ProcessRunner):
    """A runner whose candidates are spread over several devices.

    All else, defaults and comparisons among it, is of the first device: two sides of a comparison
    are always timed on one.
    """

    def __init__(
        self,
        target: Target,
        numbers: Sequence[int],
        numerics: Numerics = "standard",
        cache: CacheMode = "model",
        command: Sequence[str] = DEVICE_WORKER,
        known: Properties | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`numbers` are those of the devices among all that this process may use, the first one
        first; the other arguments are those of `ProcessRunner`.  `turns` are those of the run: each
        device has its own, and the run waits as long as the device that waits longest.
        """
        run = turns or Turns()
        visible = visible_devices()
        first, *others = [visible.get(number, str(number)) for number in numbers]
        super().__init__(
            target, numerics, cache, turns=_turns(target, first, run.now, run), known=known,
            command=command, environment={VISIBLE: first},
        )  # fmt: skip
        self._others = [
            ProcessRunner(
                target, numerics, cache, turns=_turns(target, device, run.now), known=known,
                command=command, environment={VISIBLE: device},
            )
            for device in others
        ]  # fmt: skip

    @property
    def width(self) -> int:
        """Candidates that are measured at a time."""
        return 1 + len(self._others)

    def begin(self) -> None:
        super().begin()
        for other in self._others:
            other.begin()

    def forget(self) -> None:
        super().forget()
        for other in self._others:
            other.forget()

    def close(self) -> None:
        super().close()
        for other in self._others:
            other.close()

    def compile_together(
        self,
        objects: Sequence[tuple[Kernel, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        spread: bool = False,
    ) -> None:
        """As `ProcessRunner.compile_together`; without `spread` by the first device, which compares
        alone.
        """
        own = super().compile_together
        if not spread:
            own(objects, cache=cache)
            return
        each = [own, *(other.compile_together for other in self._others)]
        parts = [objects[number :: self.width] for number in range(self.width)]
        with ThreadPoolExecutor(self.width) as threads:
            list(threads.map(lambda compile, part: compile(part, cache=cache), each, parts))

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        limit_s: float | None = None,
    ) -> list[Trial]:
        """As `ProcessRunner.measure`; of several candidates each device takes every `width`-th, as
        it has compiled these.
        """
        trials, ends = dict[int, Trial](), Event()
        own, before_s = super().measure, self._waits_s()

        def work(first: int, measure: Any) -> None:
            for number in range(first, len(objects), self.width):
                if ends.is_set():
                    return
                (trials[number],) = measure(kernel, [objects[number]], cache=cache, limit_s=limit_s)

        with ThreadPoolExecutor(self.width) as threads:
            try:
                each = [own, *(other.measure for other in self._others)]
                list(threads.map(work, range(self.width), each))
            except BaseException:
                ends.set()  # nothing new begins
                self.close()
                raise
        waited_s = [now - before for now, before in zip(self._waits_s(), before_s, strict=True)]
        self._turns.waited(max(waited_s) - waited_s[0])  # the first device's count already
        return [trials[number] for number in range(len(objects))]

    def _waits_s(self) -> list[float]:
        return [runner._turns.waited_s for runner in (self, *self._others)]


def _turns(
    target: Target, device: str, now: Callable[[], float], run: Turns | None = None
) -> Turns:
    """The turns of one device, whose name becomes that of a file."""
    name = re.sub(r"[^\w-]", "-", f"{target.platform}{device}")
    return Turns(now=now, device=name, run=run)


def visible_devices() -> dict[int, str]:
    """What the system calls the devices that this process may use, where somebody has chosen."""
    chosen = os.environ.get(VISIBLE, "")
    return dict(enumerate(filter(None, chosen.split(","))))

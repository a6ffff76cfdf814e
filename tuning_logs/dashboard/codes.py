"""Nests and machine code of kernels for the dashboard, made again one at a time, as they are asked
for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread

from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.page.kernel_page import Code
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated, model_of, regenerated

BEING_MADE = Missing("they are being made now, and this page shows them in some seconds")
FAULT = Missing("a fault ended it, which the terminal of the dashboard shows")
RUN_GOES_ON = Missing("the run has not finished, and making them would take its processors")

Key = tuple[str, str, str]
"""The id of a run, the key of a kernel, and a schedule."""
Make = Callable[[Evidence, KernelEvidence], Regenerated | Missing]


def made_again(found: Evidence, kernel: KernelEvidence) -> Regenerated | Missing:
    answers = regenerated([kernel], found.target, model_of(found.options))
    return answers.get(kernel.report.key, Missing("it has no schedule of ours"))


@dataclass
class Codes:
    """The codes that were made so far; the threads of a server share them."""

    make: Make = made_again
    _made: dict[Key, Regenerated | Missing] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    """Guards `_made`."""
    _one: Lock = field(default_factory=Lock)
    """Held while code is made: two threads at once would only take turns."""

    def of(self, found: Evidence, kernel: KernelEvidence) -> Code:
        """The code of a kernel as far as it is there; the first request begins to make it."""
        if kernel.schedule is None:
            return None
        if found.report.finished is None:
            return RUN_GOES_ON
        key = (found.report.run, kernel.report.key, kernel.schedule)
        with self._lock:
            if key in self._made:
                return self._made[key]
            self._made[key] = BEING_MADE
        Thread(target=self._work, args=(key, found, kernel), daemon=True).start()
        return BEING_MADE

    def state(self, run: str, kernel: str) -> str:
        """A text that changes when code of the kernel is begun or done."""
        with self._lock:
            made = [m for (r, k, _), m in self._made.items() if (r, k) == (run, kernel)]
        return f"{len(made)} {sum(m is BEING_MADE for m in made)}"

    def _work(self, key: Key, found: Evidence, kernel: KernelEvidence) -> None:
        made: Regenerated | Missing = FAULT
        try:
            with self._one:
                made = self.make(found, kernel)
        finally:
            with self._lock:
                self._made[key] = made

"""Kernels on a device that takes as long as a real one for all that a run does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.search.budget.contest import Contest
from hlotune.search.tasks import Task
from hlotune.search.tuner import Took
from tests.support.sessions import FakeDevice, Objects, task

SLOW = {f"conv{n}": 10e-3 for n in range(18)}
"""Seconds of the defaults: every champion has hope."""


@dataclass
class Device(FakeDevice):
    """Takes the time of a real one: XLA compiles, the oracle answers, and all of it once more in
    the final of a kernel."""

    oracle_s: float = 1.0
    compile_s: float = 0.4
    slower: float = 1.0
    """How much longer finals take than what came before lets expect."""
    agree: int = 16
    """After so many rounds a comparison ends, as each has the same order."""
    pairs: list[int] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        self.elapsed_s += 0.4 * len(candidates)
        return super().build(candidates)

    def measure(
        self,
        kernel: Kernel,
        objects: Objects,
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        if kernel.key not in self._seen:
            self._seen.add(kernel.key)
            self.elapsed_s += self.oracle_s
        return super().measure(kernel, objects, cache=cache, limit_s=limit_s)

    def default(self, kernel: Kernel) -> Measurement:
        self.elapsed_s += self.compile_s
        return super().default(kernel)

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        self.pairs.append(pairs)
        rounds = min(pairs, self.agree)
        self.elapsed_s += self.slower * (1.4 * self.oracle_s + 0.025 * rounds)
        return super().final(kernel, objects, pairs)


def several(count: int) -> tuple[Task, ...]:
    return tuple(task(f"conv{n}", n) for n in range(count))


def contest(n: int, took: Took, usable: int = 3) -> Contest:
    """The contest of a kernel whose search came to something."""
    tuner: Any = SimpleNamespace(
        took=took, best_s=1e-3, usable=usable, near=lambda times: usable,
        first_candidate=lambda: None,
    )  # fmt: skip
    return Contest(task(f"conv{n}", n), tuner, default_s=1e-3, known_trials=0, timing_s=0.1)


def products(*tasks: Task) -> list[Any]:
    """The sites of kernels that are all products."""
    return [
        SimpleNamespace(
            kernel=t.kernel, path=(), ops=frozenset([n]), weight=1.0, pattern="contraction"
        )
        for n, t in enumerate(tasks)
    ]  # fmt: skip

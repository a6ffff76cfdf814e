"""What a search needs of those that build and measure for it."""

from collections.abc import Sequence
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Candidate, Failure, Trial


class Builder(Protocol):
    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        """One outcome a candidate, in their order."""
        ...


class Runner(Protocol):
    @property
    def width(self) -> int:
        """Candidates that it measures at a time: one on each of its devices."""
        ...

    def compile_together(
        self,
        objects: Sequence[tuple[Kernel, Built | Failure]],
        *,
        cache: CacheMode | None = None,
        spread: bool = False,
    ) -> None:
        """Compiles what was built at the same time, on devices where that helps: ahead of
        comparisons, or, with `spread`, for the device that `measure` will have measure each.
        """
        ...

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        """One trial an object, in their order; bad candidates are failures, never exceptions."""
        ...


def there_and_back(
    runner: Runner,
    kernel: Kernel,
    objects: Sequence[tuple[Candidate, Built | Failure]],
    cache: CacheMode = "model",
) -> list[tuple[Trial, Trial]]:
    """Two trials of each candidate: all in this order, then all backwards, so that a machine that
    grows slower favours none.
    """
    there = runner.measure(kernel, objects, cache=cache)
    back = runner.measure(kernel, objects[::-1], cache=cache)
    return list(zip(there, reversed(back), strict=True))

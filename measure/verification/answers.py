"""What a kernel should give, made by one thread while another one calls the kernel.

Answers of the oracle take as long as the calls and their checks together, and most of either is
spent where Python lets other threads run.  One thread alone touches the references.
"""

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from hlotune.codegen.built import Built
from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.inputs import InputKind
from hlotune.measure.verification.references import References
from hlotune.measure.verification.rounds import Round, is_large, more_kinds, rounds

T = TypeVar("T")


class Answers:
    """The cases of one kernel that its verification asks for, in the order in which they are told
    to be made; with `outputs` those of Winograd's F(outputs, 3) where sums are not exact.
    """

    def __init__(self, references: References, outputs: int = 0) -> None:
        self._references, self._outputs = references, outputs
        self._thread = ThreadPoolExecutor(1, "answers")
        self._made: dict[tuple[InputKind, int], Future[Case]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        """Waits for the case that is being made, so that nothing is at work when times are taken;
        others are not begun.
        """
        self._thread.shutdown(wait=True, cancel_futures=True)

    def begin(self, kind: InputKind, seed: int) -> None:
        """Has a case made, unless it was told before."""
        if (kind, seed) not in self._made:
            self._made[kind, seed] = self.soon(
                lambda: self._references.answered(kind, seed, self._outputs)
            )

    def case(self, kind: InputKind, seed: int) -> Case:
        """The case, once it is made.  Raises what making it raises."""
        self.begin(kind, seed)
        return self._made[kind, seed].result()

    def soon(self, make: Callable[[], T]) -> "Future[T]":
        """What a function of the references gives, behind all that was told before."""
        return self._thread.submit(copy_context().run, make)


def rounds_with_cases(
    built: Built, thorough: bool, references: References, outputs: int
) -> Generator[tuple[Round, Case]]:
    """The rounds of a kernel with their cases, each of which is made while those before it are
    run, unless all of them were made before.
    """
    large = is_large(built, references.graph)
    some = partial(rounds, built.threads, thorough, is_large=large)
    first, *others = some(())
    if all(references.knows(r.kind, r.seed, outputs) for r in (first, *others)):
        for round_ in some(more_kinds(references, outputs)):
            yield round_, references.answered(round_.kind, round_.seed, outputs)
        return
    with Answers(references, outputs) as answers:
        answers.begin(first.kind, first.seed)
        more = answers.soon(lambda: more_kinds(references, outputs))
        for round_ in others:
            answers.begin(round_.kind, round_.seed)
        yield first, answers.case(first.kind, first.seed)
        for round_ in list(some(more.result()))[1:]:
            yield round_, answers.case(round_.kind, round_.seed)

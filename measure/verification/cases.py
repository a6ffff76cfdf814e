"""One set of inputs of a kernel with the oracle's answers, and how these are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle import Reference
from hlotune.hlo.oracle.bounded import quantum
from hlotune.measure.verification.inputs import Array, InputKind
from hlotune.measure.verification.whole_sums import WholeSums

ANSWERS = 6
"""Arrays as large as the oracle's values that a case has: values, bounds, places and steps."""

EXACT: frozenset[InputKind] = frozenset({"integers", "tf32"})
"""Kinds whose sums are to be exact."""
_MOST_ALIKE = 0.75
"""The share of equal results above which inputs of few terms tell too little."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A box of a result and what belongs there."""

    result: int
    box: tuple[slice, ...]
    reference: Reference
    shape: tuple[int, ...]
    """The shape of the whole result."""


@dataclass(frozen=True)
class Together:
    """Boxes of one result, one behind the other, that are compared alike."""

    result: int
    places: NDArray[np.intp]
    """The places of their elements in the result as one row."""
    reference: Reference
    step: NDArray[np.float64]
    """For each element the grid that the exact values of its box lie on; 0 where it is fine."""

    def of(self, results: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        return results[self.result].reshape(-1)[self.places]

    @cached_property
    def finite(self) -> NDArray[np.bool_]:
        """The elements whose value and bound are numbers."""
        bound = self.reference.bound
        known: NDArray[np.bool_] = np.isfinite(self.reference.value)
        return known if bound is None else known & np.isfinite(bound)

    @cached_property
    def largest(self) -> float:
        """The largest of the values that are numbers."""
        return float(np.abs(self.reference.value[self.finite]).max(initial=0.0))


@dataclass(frozen=True)
class Case:
    """One input set with the oracle's answers."""

    kind: InputKind
    values: tuple[Array, ...]
    expected: tuple[Expected, ...]
    scale: float = 1.0
    """Which of the sizes that its kind tries."""
    sums: tuple[WholeSums, ...] = ()
    """What compares all elements of results of which the oracle evaluated some boxes."""

    @cached_property
    def together(self) -> tuple[Together, ...]:
        """All that is expected, in as few parts as there are results and ways to compare."""
        alike = dict[tuple[int, bool, bool], list[Expected]]()
        for e in self.expected:
            kind = e.result, e.reference.exact, e.reference.bound is None
            alike.setdefault(kind, []).append(e)
        return tuple(map(_together, alike.values()))

    @property
    def answers_bytes(self) -> int:
        """About: each is kept by its box, and together."""
        sums = sum(s.bytes for s in self.sums)
        return sums + ANSWERS * sum(e.reference.value.nbytes for e in self.expected)

    @property
    def is_exact(self) -> bool:
        """Whether every right order of the sums gives these very bits."""
        return all(e.reference.exact for e in self.expected)

    @property
    def uncompared(self) -> float:
        """Share of the elements that are not finite, or hang on a comparison inside its error."""
        sizes = [e.reference.value.size for e in self.expected]
        lost = [max(e.reference.uncompared, e.reference.nonfinite) for e in self.expected]
        return sum(n * x for n, x in zip(sizes, lost, strict=True)) / max(1, sum(sizes))

    @property
    def suits(self) -> bool:
        """Whether integers are exact, and most results of few terms unlike each other."""
        if self.kind in EXACT:
            return self.is_exact
        return self.kind != "few" or self.alike <= _MOST_ALIKE

    @property
    def alike(self) -> float:
        """Share of the elements that have one of the two values that most have, in f32.

        The two are zero and one more, or what a function that saturates gives.
        """
        values = [e.reference.value.astype(np.float32).reshape(-1) for e in self.expected]
        counts = np.unique(np.concatenate(values), return_counts=True)[1]
        return float(np.sort(counts)[-2:].sum() / max(1, counts.sum()))


def _together(boxes: list[Expected]) -> Together:
    values = [e.reference.value.reshape(-1) for e in boxes]
    bounds = [np.reshape(e.reference.bound, -1) for e in boxes if e.reference.bound is not None]
    steps = [np.full(v.size, quantum(v) or 0.0) for v in values]
    first = boxes[0]
    reference = Reference(
        np.concatenate(values), np.concatenate(bounds) if bounds else None, first.reference.exact
    )
    places = np.concatenate([_places(e.box, e.shape) for e in boxes])
    return Together(first.result, places, reference, np.concatenate(steps))


def _places(box: tuple[slice, ...], shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Where the elements of a box lie in the row of all elements."""
    places = np.zeros((), np.intp)
    for part, extent in zip(box, shape, strict=True):
        places = places[..., None] * extent + np.arange(part.start, part.stop)
    return places.reshape(-1)

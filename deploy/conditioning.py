"""How far a program's own results go where its inputs move by one rounding.

Where a maximum is taken of two numbers that are nearly equal, or a mask says whether one is
positive, the last bit of a sum decides which way a gradient goes: two programs that are right in
every operation are then as far apart as either is from itself with its inputs rounded.  No bound
of first order tells of that, so it is measured.  (What inputs explain is no error of a program:
Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 1.5.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.flat_calls import called
from hlotune.deploy.plain_values import apart, distance, finite
from hlotune.hlo.frontends.program import Program

Array = NDArray[Any]
TIMES_MOVED = 16.0
"""Times what a result moves by that another right program may be off: which of nearly equal numbers
is larger falls differently in each, and a kernel rounds more often than once."""
MANY, TIMES_MANY = 0.1, 2.0
"""What is further off than `MANY`, relative to the result, may be so by fewer times what that
moves: signs of numbers that are nothing but roundings differ in half of the cases."""

DRAWS = 4
"""So often inputs are nudged at most: a tie falls the other way in some draws, not in others."""
BLOCK = 1 << 18
"""Numbers that are nudged together: what is computed of them stays in a cache."""


def nudged(values: Sequence[Array], seed: int = 0) -> tuple[Array, ...]:
    """Each number goes to one of its two neighbours, at random.

    Whole numbers stay, which may be masks, labels or counts in a floating type, and so do
    infinities, NaNs, and all numbers of less than 32 bits: programs compute in f32 with these,
    which are exact for it.
    """
    rng = np.random.default_rng([seed, 3])
    return tuple(_nudged(np.asarray(v), rng) for v in values)


def _nudged(value: Array, rng: np.random.Generator) -> Array:
    if value.dtype.kind == "c":
        parts = np.ascontiguousarray(value).view(value.real.dtype)
        numbers: Array = _nudged(parts, rng).view(value.dtype)
        return numbers.reshape(value.shape)
    if value.dtype not in (np.float32, np.float64):
        return value
    given = np.ascontiguousarray(value).reshape(-1)
    found = np.empty_like(given)
    for start in range(0, given.size, BLOCK):
        part = given[start : start + BLOCK]
        found[start : start + BLOCK] = _neighbours(part, rng)
    return found.reshape(value.shape)


def _neighbours(values: Array, rng: np.random.Generator) -> Array:
    """Numbers without a fraction stay."""
    bits = values.view(f"u{values.dtype.itemsize}")
    is_rounded = np.isfinite(values) & (values != np.rint(values))
    drawn = np.frombuffer(rng.bytes(-(-values.size // 8)), np.uint8)
    grows = np.unpackbits(drawn, count=values.size).view(np.bool_)
    ups, downs = is_rounded & grows, is_rounded & ~grows
    found: Array = (bits + ups - downs).view(values.dtype)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """What becomes of a result of the default where its inputs are nudged."""

    settled: Array
    """The result, with NaN where it is no longer finite then."""
    distance: float
    """How far it moves, as `plain_values.distance` has it."""

    @property
    def relative(self) -> float:
        """Relative root mean square of what it moves; infinite where it is all zeros and moves."""
        size = distance(np.zeros_like(self.settled), self.settled)
        return self.distance / size if size else inf if self.distance else 0.0

    def explain(self, got: Array) -> bool:
        """Whether another result is no further off than roundings of the inputs take a right one:
        finite where this one stays so, and within some times what it moves by.
        """
        off = distance(self.settled, got)
        if not off <= TIMES_MOVED * self.distance:
            return False
        return off <= TIMES_MANY * self.distance or apart(self.settled, got).error <= MANY


MovesIn = Callable[[int], tuple[Moves, ...]]
"""By result: what becomes of it in so many draws."""


def moves(
    program: Program,
    default: Callable[..., Any],
    values: Sequence[Array],
    results: Sequence[Array],
) -> MovesIn:
    """How far each result of the default goes where its inputs are nudged so often.

    The default is called once for each draw, and for none again.

    Args:
        values: the inputs, flat.
        results: what the default makes of them.
    """

    @cache
    def moved(draws: int) -> tuple[Moves, ...]:
        if not draws:
            return tuple(Moves(result, 0.0) for result in results)
        before = moved(draws - 1)
        found = called(program, default, nudged(values, draws - 1))
        return tuple(_further(m, np.asarray(x)) for m, x in zip(before, found, strict=True))

    return moved


def _further(known: Moves, result: Array) -> Moves:
    """What is known with the result of one more draw."""
    settled, stays = known.settled, finite(result)
    if not stays.all() and settled.dtype.kind not in "biu":
        settled = np.where(stays, settled, np.asarray(np.nan, settled.dtype))
    return Moves(settled, max(known.distance, distance(settled, result)))

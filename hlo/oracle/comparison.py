"""What the oracle says of a result, and whether a kernel's output agrees with it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle.bounded import PRECISIONS, Bounded, Float
from hlotune.schedules.dtypes import is_float


@dataclass(frozen=True, slots=True)
class Reference:
    """A result, or a box of one.

    `value` is f64 for floating results (of type f32 not rounded, so that it measures a kernel's
    true error), else of the integer type.  `bound` is never below `eps * |value|`; infinite where
    an element hangs on a comparison inside its error; None for integers that are all certain.
    """

    value: NDArray[Any]
    bound: Float | None
    exact: bool
    """Every right kernel gives these very bits: no operation behind them rounded."""

    @property
    def uncompared(self) -> float:
        """Share of the elements that cannot be compared."""
        return (
            0.0 if self.bound is None or not self.bound.size else float(np.isinf(self.bound).mean())
        )

    @property
    def nonfinite(self) -> float:
        """Share of the elements that are infinite or no number."""
        return float((~np.isfinite(self.value)).mean()) if self.value.size else 0.0


def reference(result: Bounded) -> Reference:
    """Puts the floor of one rounding under the bound."""
    if not is_float(result.dtype):
        return Reference(result.value, None if result.is_exact else result.bound, result.is_exact)
    magnitude = np.nan_to_num(np.abs(result.value), nan=0.0, posinf=0.0)
    bound = np.maximum(result.bound, PRECISIONS[result.dtype].eps * magnitude)
    return Reference(result.value, bound, result.is_exact)


@dataclass(frozen=True, slots=True)
class Mismatch:
    index: tuple[int, ...]
    """The position of the worst element."""
    expected: float
    got: float
    error: float
    """The error of the worst element, in units of its bound."""
    wrong: int
    elements: int
    uncompared: float

    def __str__(self) -> str:
        return (
            f"{self.wrong} of {self.elements} elements wrong, worst at {self.index}: "
            f"expected {self.expected:.9g}, got {self.got:.9g}, off by {self.error:.3g} times the "
            f"bound ({self.uncompared:.1%} not compared)"
        )


def compare(
    reference: Reference, actual: NDArray[Any], *, factor: float, exact: bool
) -> Mismatch | None:
    """Holds an output against the oracle; None where they agree.

    Args:
        factor: how many bounds an element may be off.
        exact: demand the bits of the value rounded to the output's type; zeros of both signs are
            equal.

    Raises:
        ValueError: the shapes differ.
    """
    if actual.shape != reference.value.shape:
        shape = reference.value.shape
        raise ValueError(
            f"expected an output of shape {shape}, got {actual.shape}; compare the same box of both"
        )
    with np.errstate(all="ignore"):
        in_bits = exact or actual.dtype.kind in "biu"
        expected = reference.value.astype(actual.dtype) if in_bits else reference.value
        bound = np.zeros(actual.shape) if reference.bound is None else reference.bound
        wide, got = expected.astype(np.float64), actual.astype(np.float64)
        same = (expected == actual) | (np.isnan(wide) & np.isnan(got)) | np.isinf(bound)
        distance = np.abs(got - wide)
        if not exact:
            same |= distance <= factor * bound
        units = np.where(same, 0.0, np.nan_to_num(distance / bound, nan=np.inf, posinf=np.inf))
    return None if same.all() else _mismatch(wide, got, same, units, reference.uncompared)


def _mismatch(
    expected: Float, got: Float, same: NDArray[np.bool_], units: Float, uncompared: float
) -> Mismatch:
    """`units`: how far off each element is, in bounds."""
    worst = np.unravel_index(np.argmax(np.where(same, -1.0, units)), same.shape)
    index = tuple(map(int, worst))
    return Mismatch(
        index,
        expected=float(expected[index]),
        got=float(got[index]),
        error=float(units[index]),
        wrong=int((~same).sum()),
        elements=same.size,
        uncompared=uncompared,
    )


def rms_error(reference: Reference, actual: NDArray[Any]) -> float:
    """Root mean square error relative to that of the values: what two kernels are compared by.

    The bound grows with every contraction, and says little after many of them; this does not.
    """
    known = np.isfinite(reference.value)
    if reference.bound is not None:
        known &= np.isfinite(reference.bound)
    expected = reference.value[known].astype(np.float64)
    error = float(np.square(actual[known].astype(np.float64) - expected).sum())
    size = float(np.square(expected).sum())
    return math.sqrt(error / size if size else error)

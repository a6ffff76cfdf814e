"""Values as numbers of f64, a complex one as two of them: which are finite, and how far two results
lie apart.

Results may be as large as all weights of a program, so that they are compared in blocks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
BLOCK = 1 << 16
"""Elements that are looked at together: what is computed of them stays in a cache."""


def plain(values: Array) -> NDArray[np.float64]:
    """Values as doubles; of complex ones real and imaginary parts beside each other, on a last axis
    of two."""
    if values.dtype.kind == "c":
        return np.stack((values.real, values.imag), -1).astype(np.float64)
    return values.astype(np.float64)


def finite(values: Array) -> NDArray[np.bool_]:
    if values.dtype in (np.float32, np.float64):
        return np.isfinite(values)  # without a copy: results may be large
    return np.isfinite(plain(values))


@dataclass(frozen=True, slots=True)
class Apart:
    """How far a result lies from the one that is expected, where that one is finite."""

    error: float
    """Root mean square error over root mean square; infinite where the result is not finite, NaN
    where there is nothing to compare."""
    compared: float
    """The share of the numbers that could be compared."""


def apart(expected: Array, got: Array) -> Apart:
    """In units of the largest value that is expected, as squares of large ones would overflow."""
    found = _sums(expected, got)
    if not found.known:
        return Apart(math.nan, 0.0 if found.numbers else 1.0)
    off, size = found.off, found.size
    error = math.sqrt(off / size) if size else math.inf if off else 0.0
    return Apart(error, found.known / found.numbers)


def distance(expected: Array, got: Array) -> float:
    """The norm of what a result is off where the expected one is finite, in units of its largest
    value, or of 1 where all are zero; infinite where the result is not finite."""
    return math.sqrt(_sums(expected, got).off)


@dataclass(frozen=True, slots=True)
class _Sums:
    off: float
    """The sum of the squares of differences."""
    size: float
    """The sum of the squares of what is expected."""
    numbers: int
    known: int
    """Those of the numbers that are expected to be finite."""


def _sums(expected: Array, got: Array) -> _Sums:
    unit = _largest(expected) or 1.0
    off = size = 0.0
    numbers = known = 0
    with np.errstate(all="ignore"):
        for all_wanted, all_got in _blocks(expected, got):
            kept = np.isfinite(all_wanted)
            want, have = (x if kept.all() else x[kept] for x in (all_wanted, all_got))
            numbers, known = numbers + kept.size, known + want.size
            have -= want
            off += _square(have / unit)
            size += _square(want / unit)
            if not math.isfinite(off):  # as one of the values that were got was
                off, size = math.inf, 1.0
    return _Sums(off, size, numbers, known)


def lost(expected: Array, got: Array) -> int:
    """How many numbers are not finite where those that are expected are."""
    return sum(int((finite(e) & ~finite(g)).sum()) for e, g in _parts(expected, got))


def _parts(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    flat = [x.reshape(-1) for x in arrays]
    for start in range(0, flat[0].size, BLOCK):
        yield tuple(x[start : start + BLOCK] for x in flat)


def _largest(values: Array) -> float:
    """The largest size of a finite value; 0 where there is none."""
    sizes = (np.abs(x[np.isfinite(x)]).max(initial=0.0) for (x,) in _blocks(values))
    return float(max(sizes, default=0.0))


def _blocks(*arrays: Array) -> Iterator[tuple[NDArray[np.float64], ...]]:
    for part in _parts(*arrays):
        yield tuple(plain(x) for x in part)


def _square(x: NDArray[np.float64]) -> float:
    """The sum of squares; what is in `x` is lost."""
    return float(np.square(x, out=x).sum())  # BLAS would start threads for each block

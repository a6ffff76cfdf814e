"""How far the results of a kernel are from what the oracle says, and whether that is too far."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle import Reference, compare
from hlotune.hlo.oracle.bounded import quantum
from hlotune.measure.verification.cases import Case
from hlotune.schedules.errors import WrongResult

_ROUNDING = 1e-9
"""Relative; far above what quotients and products are off by."""


def largest_error(
    case: Case, results: Sequence[NDArray[np.generic]], factor: float, *, reorders: bool
) -> float:
    """Largest deviation in units of the oracle's bound; see `_check_boxes` for what it demands.

    Raises WrongResult where a deviation is over `factor`.
    """
    worst = 0.0
    for together in case.together:
        reference, actual = together.reference, together.of(results)
        if reference.exact and not reorders:
            actual = _to_grid(actual, reference.value, together.step)
        if np.array_equal(actual, reference.value):
            continue
        error = units_off(reference, actual)
        worst = max(worst, error)
        agrees = error < factor * (1 - _ROUNDING)
        if reference.exact:
            agrees = compare(reference, actual, factor=factor, exact=True) is None
        if not agrees:
            _check_boxes(case, results, factor, reorders=reorders)
    return worst


def units_off(reference: Reference, actual: NDArray[np.generic]) -> float:
    """The largest deviation in bounds, as `compare` finds it: what is not finite is for that."""
    if reference.bound is not None and actual.dtype.kind == "f":
        with np.errstate(all="ignore"):
            distance = np.abs(np.subtract(actual, reference.value))
            worst = float(np.divide(distance, reference.bound, out=distance).max(initial=0.0))
        if np.isfinite(worst):
            return worst
    off = compare(reference, actual, factor=0.0, exact=False)
    return 0.0 if off is None else off.error


def _check_boxes(
    case: Case, results: Sequence[NDArray[np.generic]], factor: float, *, reorders: bool
) -> None:
    """Holds one box after the other against the oracle.

    Where sums are exact their order does not matter, so the exact bits are owed by what only
    `reorders` them, and by what rounds on the way a result that could be no other exact value.
    Raises WrongResult where a deviation is over `factor`.
    """
    for expected in case.expected:
        actual = results[expected.result][expected.box]
        exact = expected.reference.exact
        if exact and not reorders:
            value = expected.reference.value
            actual = _to_grid(actual, value, quantum(value) or 0.0)
        wrong = compare(expected.reference, actual, factor=factor, exact=exact)
        if wrong is not None:
            start = tuple(s.start for s in expected.box)
            demanded = "exact bits" if exact else f"at most {factor:g} bounds of error"
            raise WrongResult(
                f"result {expected.result}, {case.kind} inputs, {demanded} demanded, "
                f"in the box that starts at {start}: {wrong}"
            )


def relative_error(case: Case, results: Sequence[NDArray[np.generic]]) -> float:
    """The worst of all results; 0 for a result of no size, and of what is no floating number."""
    off, largest = dict[int, float](), dict[int, float]()
    for together in case.together:
        actual, value = together.of(results), together.reference.value
        if not np.issubdtype(value.dtype, np.floating):
            continue
        n, known = together.result, together.finite
        distance = np.abs(actual.astype(np.float64)[known] - value[known])
        off[n] = max(off.get(n, 0.0), float(distance[np.isfinite(distance)].max(initial=0.0)))
        largest[n] = max(largest.get(n, 0.0), together.largest)
    return max((off[n] / size for n, size in largest.items() if size), default=0.0)


def _to_grid(
    actual: NDArray[np.generic], exact: NDArray[np.float64], step: float | NDArray[np.float64]
) -> NDArray[np.generic]:
    """Results with what deviates by less than a quarter of the grid of exact values put on it.

    A lost or doubled term is a whole step of the grid, so it cannot hide.
    """
    nearest = np.abs(actual.astype(np.float64) - exact) < step / 4
    return np.where(nearest, exact, actual).astype(actual.dtype)

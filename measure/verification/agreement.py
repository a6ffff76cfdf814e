"""Whether XLA's own result of a kernel agrees with the oracle, within the bound of a candidate.

XLA is what candidates have to beat, and is not held to what they are held to: nothing comes of it
here but that it is said, and that a candidate that is right is preferred to a default that is not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.deviation import relative_error, units_off
from hlotune.measure.verification.inputs import Array, InputKind
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import TOLERANCE
from hlotune.schedules.errors import UnsupportedKernel

KINDS: tuple[InputKind, ...] = ("integers", "normal")
"""Sets of inputs on which each candidate is looked at as well."""
MOST_ERROR = 1e9
"""The error, in units of the tolerance, of a result that is no number where there is to be one; no
error counts as more.
"""


@dataclass(frozen=True, slots=True)
class Agreement:
    error: float
    """Largest deviation from the oracle, in units of the tolerance of `standard`: above 1 the
    result does not agree with it.  At most `MOST_ERROR`."""
    relative_error: float
    """Largest deviation over the largest value of its result, with normal inputs."""


def agreement(
    call: Callable[[Sequence[Array]], Sequence[NDArray[np.generic]]], references: References
) -> Agreement | None:
    """How a function's results agree with the oracle's; None where the oracle has none."""
    worst = relative = 0.0
    try:
        for kind in KINDS:
            case = references.case(kind)
            results = call(case.values)
            worst = max(worst, _units_off(case, results))
            if kind == "normal":
                relative = relative_error(case, results)
    except UnsupportedKernel:
        return None
    return Agreement(min(MOST_ERROR, worst / TOLERANCE["standard"]), relative)


def _units_off(case: Case, results: Sequence[NDArray[np.generic]]) -> float:
    return max((units_off(t.reference, t.of(results)) for t in case.together), default=0.0)

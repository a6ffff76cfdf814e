"""An analytic model: the time that a nest's arithmetic and its traffic between caches would take.

It learns nothing, so it ranks from the first candidate on, and shows what learning is worth.
The form is a roofline with one roof a cache level (Williams et al., CACM 2009), roofs added up; the
figures are the features' own (`schedules/features/cost_terms.py`).  These share cycles among the
threads by whole tasks; here the last word is that of the thread with the largest ones.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel import files
from hlotune.costmodel.inputs import (
    Features,
    Inputs,
    Reads,
    as_summaries,
    require_lesson,
    require_rows,
)
from hlotune.costmodel.training_budget import Effort
from hlotune.schedules.features.summary import NAMES

TIME, BALANCE, EVEN = (NAMES.index(name) for name in ("cost_total", "balance", "even"))
LEAST = 2.0**-16
"""Share below which none is told apart, as in the features."""


class Roofline:
    """Predicts the logarithm of the speed."""

    reads: Reads = "summary"
    knows = True

    def __init__(self, effort: Effort = "batch") -> None:
        """Every effort is the same to it."""

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        """Learns nothing."""
        require_lesson(inputs, scores, groups, self.reads)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        require_rows(inputs, self.reads)
        return log_speed(as_summaries(inputs))

    def save(self, path: Path) -> None:
        files.write(path, files.Header("roofline", files.features_key(self.reads)), {})

    def load(self, path: Path) -> None:
        with files.arrays_of(path, "roofline", self.reads):
            pass  # it has none


def log_speed(rows: Features) -> NDArray[np.float32]:
    """log2 of the speed of each row, up to a constant of its kernel."""
    whole, even = (np.log2(np.clip(rows[:, k], LEAST, 1)) for k in (BALANCE, EVEN))
    speed: NDArray[np.float32] = even - whole - rows[:, TIME]
    return speed

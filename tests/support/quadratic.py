"""A cost model that is fitted in no time, for tests of runs rather than of models."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Features, Inputs, Reads, as_summaries, require_lesson


class Quadratic:
    """The sums and squares of features that fit the scores best."""

    reads: Reads = "summary"

    def __init__(self) -> None:
        self._used = np.zeros(0, np.intp)
        """The features that differ from row to row."""
        self._weights: NDArray[np.float64] | None = None

    @property
    def knows(self) -> bool:
        return self._weights is not None

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        require_lesson(inputs, scores, groups, self.reads)
        rows = as_summaries(inputs)
        if not any(np.ptp(scores[groups == g]) > 0 for g in np.unique(groups)):
            return
        self._used = np.flatnonzero(np.ptp(rows, axis=0) > 0)
        self._weights = np.linalg.lstsq(self._terms(rows), scores.astype(float), rcond=1e-6)[0]

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        rows = as_summaries(inputs)
        if self._weights is None:
            return np.zeros(len(rows), np.float32)
        return (self._terms(rows) @ self._weights).astype(np.float32)

    def _terms(self, rows: Features) -> NDArray[np.float64]:
        used = rows[:, self._used].astype(float)
        return np.concatenate([np.ones((len(rows), 1)), used, used**2], axis=1)

    def save(self, path: Path) -> None:
        raise ValueError(f"expected a model that can be kept, got one of tests; not to {path}")

    def load(self, path: Path) -> None:
        raise ValueError(f"expected a model that can be kept, got one of tests; not from {path}")

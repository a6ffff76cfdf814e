"""A model that knows nothing: the rival that shows what a learned one is worth."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel import files
from hlotune.costmodel.inputs import Inputs, Reads, as_summaries, require_lesson, require_rows
from hlotune.costmodel.training_budget import Effort


class RandomModel:
    """Gives each row of features a number that hangs on the row and the seed alone."""

    reads: Reads = "summary"
    knows = True

    def __init__(self, effort: Effort = "batch", seed: int = 0) -> None:
        self.seed = seed

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        """Learns nothing."""
        require_lesson(inputs, scores, groups, self.reads)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        require_rows(inputs, self.reads)
        rng, summaries = np.random.default_rng(self.seed), as_summaries(inputs)
        direction = rng.standard_normal(summaries.shape[1])
        # The fast sine of a projection is as good as noise, but the same for the same row.
        phase = np.sin(summaries.astype(np.float64) @ direction * 12.9898) * 43758.5453
        return (phase - np.floor(phase)).astype(np.float32)

    def save(self, path: Path) -> None:
        header = files.Header("random", files.features_key(self.reads))
        files.write(path, header, {"seed": np.array(self.seed)})

    def load(self, path: Path) -> None:
        with files.arrays_of(path, "random", self.reads) as arrays:
            self.seed = int(arrays["seed"])

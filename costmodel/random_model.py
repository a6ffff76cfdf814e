"""A model that knows nothing: the rival that shows what a learned one is worth."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class RandomModel:
    """Gives each row of features a number that hangs on the row and the seed alone."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(
        self,
        features: NDArray[np.float32],
        scores: NDArray[np.float32],
        groups: NDArray[np.int32],
    ) -> None:
        """Learns nothing."""

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        rng = np.random.default_rng(self.seed)
        direction = rng.standard_normal(features.shape[1])
        # The fast sine of a projection is as good as noise, but the same for the same row.
        phase = np.sin(features.astype(np.float64) @ direction * 12.9898) * 43758.5453
        return (phase - np.floor(phase)).astype(np.float32)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"seed": self.seed}))

    def load(self, path: Path) -> None:
        self.seed = int(json.loads(path.read_text())["seed"])

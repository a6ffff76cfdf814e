"""The role of a cost model: to say which of many schedules of a kernel are fast."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.random_model import RandomModel
from hlotune.costmodel.trees import Trees

Features = NDArray[np.float32]
"""`(n, F)`: one row a schedule, as `Space.features` gives them."""


class CostModel(Protocol):
    """Ranks schedules of one kernel; values for different kernels need not be comparable.

    What a model has learned depends on the model it was loaded with and on the rows of the last
    `fit`, on nothing else.  So a search that is taken up again after a crash makes the same
    proposals as one that never crashed.
    """

    def fit(
        self, features: Features, scores: NDArray[np.float32], groups: NDArray[np.int32]
    ) -> None:
        """Learns from all that is known, oldest first.

        Args:
            features: `(n, F)`.
            scores: `(n,)`, best time of the group / time, so the best has 1; a failure has 0.
            groups: `(n,)`, one number a kernel; only rows of one group are compared.
        """
        ...

    def predict(self, features: Features) -> NDArray[np.float32]:
        """`(n,)`: larger is faster; all zeros as long as nothing was learned or loaded."""
        ...

    def save(self, path: Path) -> None: ...

    def load(self, path: Path) -> None:
        """Starts from what a file holds; a later `fit` learns on top of it."""
        ...


MODELS: dict[str, Callable[[], CostModel]] = {"trees": Trees, "random": RandomModel}

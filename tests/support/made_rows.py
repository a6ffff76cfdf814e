"""Rows for cost models, made by a formula: what is fast is known."""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Features
from hlotune.costmodel.roofline import BALANCE, EVEN, TIME
from hlotune.schedules.features.summary import NAMES

Scores = NDArray[np.float32]
Groups = NDArray[np.int32]


def kernels(n: int, groups: int = 1, seed: int = 0) -> tuple[Features, Scores, Groups]:
    """Rows of `groups` kernels, each with the best score 1, and one failure in sixteen."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, len(NAMES))).astype(np.float32)
    features[:, [TIME, BALANCE, EVEN]] = 0  # estimates that tell nothing
    group = rng.integers(0, groups, n).astype(np.int32)
    score = np.exp(-((features[:, 0] - 1) ** 2) - 0.5 * np.abs(features[:, 1] * features[:, 2]))
    for g in range(groups):
        score[group == g] /= score[group == g].max()
    score[rng.random(n) < 1 / 16] = 0
    return features, score.astype(np.float32), group

"""Children of two configs: a stretch of columns from one, the others from the other."""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.moves import retried
from hlotune.schedules.spaces.space import Configs, Space

ROUNDS = 4


def crossed(space: Space, mothers: Configs, fathers: Configs, rng: np.random.Generator) -> Configs:
    """One legal child of each pair; the mother where several tries make none.

    Columns that belong together stand side by side, so that a stretch of them fits together.
    """
    children = mothers.copy()
    unlike = np.flatnonzero((mothers != fathers).any(axis=1))
    mothers, fathers = mothers[unlike], fathers[unlike]

    def changed(rows: NDArray[np.intp]) -> Configs:
        return _child(mothers[rows], fathers[rows], rng)

    children[unlike] = retried(mothers, changed, space.legal, ROUNDS)
    return children


def _child(mothers: Configs, fathers: Configs, rng: np.random.Generator) -> Configs:
    n, columns = mothers.shape
    ends = np.sort(rng.integers(columns + 1, size=(n, 2)), axis=1)
    column = np.arange(columns)
    stretch = (column >= ends[:, :1]) & (column < ends[:, 1:])
    return np.where(stretch, fathers, mothers)

"""Children of two configs: a stretch of columns from one, the others from the other."""

import numpy as np

from hlotune.schedules.space import Configs, Space

ROUNDS = 4


def crossed(space: Space, mothers: Configs, fathers: Configs, rng: np.random.Generator) -> Configs:
    """One legal child of each pair; the mother where several tries make none.

    Columns that belong together stand side by side, so that a stretch of them fits together.
    """
    children = mothers.copy()
    waiting = np.flatnonzero((mothers != fathers).any(axis=1))
    for _ in range(ROUNDS):
        if not len(waiting):
            break
        tried = _child(mothers[waiting], fathers[waiting], rng)
        good = space.legal(tried) & (tried != mothers[waiting]).any(axis=1)
        children[waiting[good]] = tried[good]
        waiting = waiting[~good]
    return children


def _child(mothers: Configs, fathers: Configs, rng: np.random.Generator) -> Configs:
    n, columns = mothers.shape
    ends = np.sort(rng.integers(columns + 1, size=(n, 2)), axis=1)
    column = np.arange(columns)
    stretch = (column >= ends[:, :1]) & (column < ends[:, 1:])
    return np.where(stretch, fathers, mothers)

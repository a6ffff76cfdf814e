"""Neighbours of the best configs measured, those first that the model likes best."""

import numpy as np

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.history import History

CENTRES = 4
"""Best configs whose neighbours are looked at."""
DRAWS = 256
"""Neighbours drawn for each centre; enough to meet nearly all of them."""


def nearby(
    space: Space, model: CostModel, history: History, n: int, rng: np.random.Generator
) -> Configs:
    """Up to n new configs: half of n around the best config, half of the rest around the next, and
    so on.
    """
    centres = history.best(CENTRES)
    if n <= 0 or not len(centres):
        return history.configs[:0]
    drawn = space.neighbours(np.repeat(centres, DRAWS, axis=0), rng)
    around = np.repeat(np.arange(len(centres)), DRAWS)
    new = history.unseen(drawn)
    drawn, around = drawn[new], around[new]
    if not len(drawn):
        return drawn
    order = np.lexsort((-predictions(model, space, drawn), around))
    place = np.arange(len(order)) - np.searchsorted(around[order], around[order])
    wanted = np.maximum(1, n >> (around[order] + 1))
    chosen: Configs = drawn[order[place < wanted]][:n]
    return chosen

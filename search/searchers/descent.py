"""Coordinate descent: neighbours of the best configs, the model's favourites first.

Of the best config all steps along an axis are looked at, one knob moved by one, as Droplet search
walks (Canesche et al., TACO 2024); and of the best four other changes too, such as pass a factor
from one level to another: two knobs at once, where no step along an axis may be downhill.  As soon
as one is faster, the walk goes on from there.  It ends every search.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.history import History, Times
from hlotune.search.searchers.random_search import batch_rng, filled, legal_rows
from hlotune.search.searchers.searcher_state import packed, unpacked

CENTRES = 4
"""So many of the best configs have their neighbours looked at."""
DRAWS = 256
"""So many neighbours are drawn for each centre: enough to meet nearly all of them."""


class Descent:
    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._model = space, model
        self._entropy = (*entropy, 0xDE5CE)  # other numbers than the searcher's whose work it ends
        self._first = legal_rows(space, first)
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        near = nearby(self._space, self._model, self.history, n, rng)
        rows = np.concatenate([self._first, near])
        return filled(self._space, self.history, rows, n, rng)

    def observe(self, configs: Configs, times_s: Times) -> None:
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        return packed(self.history.arrays())

    def restore(self, state: bytes) -> None:
        self.history = History.of(self._space, unpacked(state))


def nearby(
    space: Space, model: CostModel, history: History, n: int, rng: np.random.Generator
) -> Configs:
    """Up to n new configs: half of n around the best config, half of the rest around the next, and
    so on.
    """
    centres = history.best(CENTRES)
    if n <= 0 or not len(centres):
        return history.configs[:0]
    steps = along_axes(space, centres[0])
    drawn = np.concatenate([steps, space.neighbours(np.repeat(centres, DRAWS, axis=0), rng)])
    around = np.concatenate([np.zeros(len(steps), int), np.repeat(np.arange(len(centres)), DRAWS)])
    new = history.unseen(drawn)
    drawn, around = drawn[new], around[new]
    if not len(drawn):
        return drawn
    order = np.lexsort((-predictions(model, space, drawn), around))
    place = np.arange(len(order)) - np.searchsorted(around[order], around[order])
    wanted = np.maximum(1, n >> (around[order] + 1))
    chosen: Configs = drawn[order[place < wanted]][:n]
    return chosen


def along_axes(space: Space, config: NDArray[np.int32]) -> Configs:
    """All legal configs with one column of this one moved by one."""
    step = np.eye(len(config), dtype=np.int32)
    moved: Configs = config + np.concatenate([step, -step])
    return moved[space.legal(moved)]

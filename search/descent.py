"""Coordinate descent: neighbours of the best configs, the model's favourites first.

It ends every search.
"""

import numpy as np

from hlotune.costmodel.model import CostModel
from hlotune.schedules.space import Configs, Space
from hlotune.search.history import History, Times
from hlotune.search.memory import packed, unpacked
from hlotune.search.nearby import nearby
from hlotune.search.random_search import batch_rng, filled, legal_rows


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

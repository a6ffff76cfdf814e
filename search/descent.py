"""Coordinate descent: neighbours of the best configs, the model's favourites first.

It ends every search.
"""

import numpy as np

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.history import History, Times
from hlotune.search.memory import packed, unpacked
from hlotune.search.random_search import batch_rng, filled, legal_rows

CENTRES = 4
"""Best configs whose neighbours are tried, the best one's first."""
DRAWS = 256
"""Neighbours drawn for each centre; enough to meet nearly all of them."""


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
        centres = self.history.best(CENTRES)
        # Half a batch around the best config, half of the rest around the next, and so on.
        rows = [self._first]
        for place, centre in enumerate(centres):
            rows.append(self._around(centre, max(1, n >> (place + 1)), rng))
        return filled(self._space, self.history, np.concatenate(rows), n, rng)

    def _around(self, centre: Configs, n: int, rng: np.random.Generator) -> Configs:
        """The n new neighbours of one config that the model likes best."""
        drawn = self._space.neighbours(np.repeat(centre[None, :], DRAWS, axis=0), rng)
        drawn = drawn[self.history.unseen(drawn)]
        values = predictions(self._model, self._space, drawn)
        return drawn[np.argsort(-values, kind="stable")[:n]]

    def observe(self, configs: Configs, times_s: Times) -> None:
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        return packed(self.history.arrays())

    def restore(self, state: bytes) -> None:
        self.history = History.of(self._space, unpacked(state))

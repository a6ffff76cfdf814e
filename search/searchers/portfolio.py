"""Several searchers share each batch; one that finds good candidates gets a larger part of the
next.

All of them see all times, so that each builds on what the others find.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.annealing import Annealing
from hlotune.search.searchers.descent import Descent
from hlotune.search.searchers.evolution import Evolution
from hlotune.search.searchers.history import History, Times, digests, scores
from hlotune.search.searchers.random_search import RandomSearch, batch_rng, filled, legal_rows
from hlotune.search.searchers.searcher_state import packed, unpacked

ARMS = (Annealing, Evolution, Descent, RandomSearch)
START = (4.0, 2.0, 1.0, 1.0)
"""The credit of each of `ARMS` before anything is known."""
MEMORY = 0.8
"""This part of a credit outlives a batch."""
LEAST = 1 / 16
"""Even the worst searcher gets this share of a batch."""


class Portfolio:
    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._entropy = space, entropy
        self._first = legal_rows(space, first)
        none = self._first[:0]
        self._arms = [
            arm(space, model, (*entropy, number), none) for number, arm in enumerate(ARMS)
        ]
        self.credit = np.array(START)
        self._owner: dict[int, int] = {}
        """The number of the searcher that proposed a digest, for the batch in flight."""
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        rows = self._first[self.history.unseen(self._first)][:n]
        self._owner = {}
        for number, size in enumerate(parts(self.credit, n - len(rows))):
            own = self._arms[number].propose(size)
            for digest in digests(self._space, own).tolist():
                self._owner.setdefault(digest, number)
            rows = np.concatenate([rows, own])
        return filled(self._space, self.history, rows, n, rng)

    def observe(self, configs: Configs, times_s: Times) -> None:
        owners = [self._owner.pop(d, -1) for d in digests(self._space, configs).tolist()]
        self.credit = credited(self.credit, np.array(owners, np.int64), scores(times_s))
        for arm in self._arms:
            arm.observe(configs, times_s)
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        arms = {f"arm{k}": np.frombuffer(arm.state(), np.uint8) for k, arm in enumerate(self._arms)}
        return packed({"credit": self.credit, **arms, **self.history.arrays()})

    def restore(self, state: bytes) -> None:
        arrays = unpacked(state)
        self.history = History.of(self._space, arrays)
        self.credit = arrays["credit"]
        for k, arm in enumerate(self._arms):
            arm.restore(arrays[f"arm{k}"].tobytes())


def parts(credit: NDArray[np.float64], n: int) -> list[int]:
    """Whole numbers that add up to n, about in proportion; none is below `LEAST` of n, about."""
    shares = np.maximum(credit / credit.sum(), LEAST)
    ends = np.rint(np.cumsum(shares / shares.sum()) * max(0, n)).astype(int)
    return [int(x) for x in np.diff(ends, prepend=0)]


def credited(
    credit: NDArray[np.float64], owners: NDArray[np.int64], score: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The credit after a batch: the searcher that found its best gets most, by the fourth power of
    the score.

    A searcher that had no part in the batch keeps its credit.
    """
    result = credit.copy()
    for number in range(len(credit)):
        own = score[owners == number]
        if len(own):
            result[number] = MEMORY * credit[number] + (1 - MEMORY) * 4 * float(own.max()) ** 4
    return result

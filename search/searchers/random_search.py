"""Random search, which others are compared with: distinct legal configs at random, behind the first
candidates.
"""

import numpy as np

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.history import History, Times
from hlotune.search.searchers.searcher_state import packed, unpacked

ATTEMPTS = 8
"""After so many draws of a sample without anything new a space counts as exhausted."""


class RandomSearch:
    """Takes a model because every searcher does, and does not ask it."""

    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._entropy = space, entropy
        self._first = legal_rows(space, first)
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        return filled(self._space, self.history, self._first, n, rng)

    def observe(self, configs: Configs, times_s: Times) -> None:
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        return packed(self.history.arrays())

    def restore(self, state: bytes) -> None:
        self.history = History.of(self._space, unpacked(state))


def batch_rng(entropy: tuple[int, ...], observed: int) -> np.random.Generator:
    """The random numbers of a batch depend on seed, kernel, and how much was observed before."""
    return np.random.default_rng(np.random.SeedSequence([*entropy, observed]))


def legal_rows(space: Space, first: Configs) -> Configs:
    """The configs that are legal today, of those that are to be measured before anything is
    searched.
    """
    return first[space.legal(first)].astype(np.int32)


def filled(
    space: Space, history: History, rows: Configs, n: int, rng: np.random.Generator
) -> Configs:
    """The first n of `rows` that are new, filled up with random configs where there are too few."""
    rows = rows[history.unseen(rows)]
    for _ in range(ATTEMPTS):
        if len(rows) >= n:
            break
        rows = np.concatenate([rows, space.sample(n, rng)])
        rows = rows[history.unseen(rows)]
    return rows[:n]

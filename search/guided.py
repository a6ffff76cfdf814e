"""What searches that ask the model have in common: what goes first, the guard, the memory."""

from abc import ABC, abstractmethod

import numpy as np

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.guard import EPSILON, exploring_share, judged
from hlotune.search.history import History, Times
from hlotune.search.memory import Arrays, packed, unpacked
from hlotune.search.picking import SHORTLIST, Scores, apart, best_distinct
from hlotune.search.random_search import batch_rng, filled, legal_rows

EXPLORED = 512
"""Random configs among which the model chooses where a batch explores."""
RANKED = 4096
"""Rows that are looked through at a time for new nests: a look costs as much as some thousand."""


class Guided(ABC):
    """A search on the model, but for the way in which it meets good configs."""

    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._model, self._entropy = space, model, entropy
        self._first = legal_rows(space, first)
        self.epsilon = EPSILON
        self.history = History(space)

    @abstractmethod
    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """The n best new configs that the model met this time, best first."""

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        first = self._first[self.history.unseen(self._first)][:n]
        chosen = n - len(first) - int(np.ceil(exploring_share(self.epsilon, self.history) * n))
        if chosen > 0 and self._model.knows:
            best = self._best_met(SHORTLIST * n, rng)
            first = np.concatenate([first, apart(best, self._space.features(best), chosen)])
        if self._model.knows and self.epsilon <= EPSILON:  # one that misleads is not asked here
            first = np.concatenate([first, self._explored(n - len(first), rng)])
        return filled(self._space, self.history, first, n, rng)

    def _explored(self, n: int, rng: np.random.Generator) -> Configs:
        """New configs of n sketches, of those measured least: of each the best of some at random.

        A config at random says little of its sketch: most of its other knobs are poor.  Column 0
        is the sketch.
        """
        if n <= 0:
            return self._first[:0]
        drawn = self._space.sample(EXPLORED, rng)
        drawn = drawn[self.history.unseen(drawn)]
        ranked = best_distinct(drawn, self._score(drawn))
        sketches, best = np.unique(ranked[:, 0], return_index=True)
        measured = [np.count_nonzero(self.history.configs[:, 0] == s) for s in sketches]
        order = np.lexsort((rng.random(len(sketches)), measured))
        return ranked[best[order[:n]]]

    def observe(self, configs: Configs, times_s: Times) -> None:
        new = self.history.unseen(configs)
        configs, times_s = configs[new], times_s[new]
        if self._model.knows:
            self.epsilon = judged(self.epsilon, self._score(configs), times_s)
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        return packed(self._arrays())

    def restore(self, state: bytes) -> None:
        self._restore(unpacked(state))

    def _arrays(self) -> Arrays:
        return {"epsilon": np.array(self.epsilon), **self.history.arrays()}

    def _restore(self, arrays: Arrays) -> None:
        self.history = History.of(self._space, arrays)
        self.epsilon = float(arrays["epsilon"])

    def _score(self, configs: Configs) -> Scores:
        return predictions(self._model, self._space, configs)

    def _new(self, configs: list[Configs], values: list[Scores], n: int) -> Configs:
        """The n best of all as nests, without what was observed before.

        Many rows make one nest, all of them with one score, so it may take many rows to find n.
        """
        ranked = best_distinct(np.concatenate(configs), np.concatenate(values))
        found = ranked[:0]
        for start in range(0, len(ranked), RANKED):
            found = np.concatenate([found, ranked[start : start + RANKED]])
            found = found[self.history.unseen(found)]
            if len(found) >= n:
                break
        return found[:n]

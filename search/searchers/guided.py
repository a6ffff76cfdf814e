"""The part that all searches with a model share: first candidates, exploration, and the history."""

from abc import ABC, abstractmethod

import numpy as np

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.batch_selection import SHORTLIST, Scores, apart, best_distinct
from hlotune.search.searchers.exploration_guard import EPSILON, exploring_share, judged
from hlotune.search.searchers.history import History, Times
from hlotune.search.searchers.random_search import batch_rng, filled, legal_rows
from hlotune.search.searchers.searcher_state import Arrays, packed, unpacked

EXPLORED = 512
"""Where a batch explores, the model chooses among so many random configs, and those it met."""
LEADERS = 4
"""So many configs of each sketch are kept of all that the model met."""
RANKED = 4096
"""So many rows are looked through at a time for new nests: a look costs as much as some thousand
rows do.
"""


class Guided(ABC):
    """A search with a model; a subclass says how it meets good configs."""

    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._model, self._entropy = space, model, entropy
        self._first = legal_rows(space, first)
        self.epsilon = EPSILON
        self.history = History(space)
        self._leaders = self._first[:0]
        """The best configs of each sketch that the model met in this proposal."""

    @abstractmethod
    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """The n best new configs that the model met this time, best first."""

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        self._leaders = self._first[:0]
        first = self._first[self.history.unseen(self._first)][:n]
        chosen = n - len(first) - int(np.ceil(exploring_share(self.epsilon, self.history) * n))
        if chosen > 0 and self._model.knows:
            best = self._best_met(SHORTLIST * n, rng)
            first = np.concatenate([first, apart(best, self._space.features(best), chosen)])
        if self._model.knows and self.epsilon <= EPSILON:  # one that misleads is not asked here
            first = np.concatenate([first, self._explored(n - len(first), first, rng)])
        return filled(self._space, self.history, first, n, rng)

    def _explored(self, n: int, chosen: Configs, rng: np.random.Generator) -> Configs:
        """New configs of the n sketches that were measured or chosen least, of each sketch the
        model's best.

        Of sketches that were measured equally often, those come first whose best the model likes
        most.  The model knows nothing of what it never measured, so that a search would stay with
        the sketches of its first batches, however far another one is ahead.  Column 0 of a config
        is its sketch.
        """
        if n <= 0:
            return self._first[:0]
        drawn = np.concatenate([chosen, self._leaders, self._space.sample(EXPLORED, rng)])
        new = self.history.unseen(drawn)
        new[: len(chosen)] = False
        drawn = drawn[new]
        ranked = best_distinct(drawn, self._score(drawn))
        sketches, best = np.unique(ranked[:, 0], return_index=True)
        known = np.concatenate([self.history.configs[:, 0], chosen[:, 0]])
        measured = [np.count_nonzero(known == s) for s in sketches]
        found: Configs = ranked[best[np.lexsort((best, measured))[:n]]]
        return found

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
        """The n best configs by distinct nests, without those that were observed before.

        Many rows make one nest, all of them with one score, so that it may take many rows to find
        n.
        """
        ranked = best_distinct(np.concatenate(configs), np.concatenate(values))
        self._leaders = leaders(ranked)
        found = ranked[:0]
        for start in range(0, len(ranked), RANKED):
            found = np.concatenate([found, ranked[start : start + RANKED]])
            found = found[self.history.unseen(found)]
            if len(found) >= n:
                break
        return found[:n]


def leaders(ranked: Configs) -> Configs:
    """The first `LEADERS` rows of each sketch; some may be nests that are known."""
    order = np.argsort(ranked[:, 0], kind="stable")
    sketches = ranked[order, 0]
    place = np.arange(len(order)) - np.searchsorted(sketches, sketches)
    found: Configs = ranked[np.sort(order[place < LEADERS])]
    return found

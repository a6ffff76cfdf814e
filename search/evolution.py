"""Evolutionary search on the cost model: of each generation the fittest mate and mutate.

As in Ansor (arXiv:2006.06762), but parents are drawn by rank, so that no scale of scores matters,
and a quarter of each first generation are the best measured configs.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.crossing import crossed
from hlotune.search.guard import EPSILON, judged, random_share
from hlotune.search.history import History, Times
from hlotune.search.memory import packed, unpacked
from hlotune.search.picking import SHORTLIST, Scores, apart, best_distinct
from hlotune.search.random_search import batch_rng, filled, legal_rows

POPULATION = 2048
GENERATIONS = 8
KNOWN = 1 / 4
"""Share of the first generation that are the best measured configs."""
ELITE = 1 / 16
"""Share of a generation that lives on as it is."""
MUTATED = 0.6
"""Share of the children that are then moved once more."""
PRESSURE = 4.0
"""The fittest has e to this power more children than the least fit."""


class Evolution:
    def __init__(
        self,
        space: Space,
        model: CostModel,
        entropy: tuple[int, ...],
        first: Configs,
        *,
        population: int = POPULATION,
        generations: int = GENERATIONS,
    ) -> None:
        self._space, self._model, self._entropy = space, model, entropy
        self._count, self._generations = population, generations
        self._first = legal_rows(space, first)
        self.epsilon = EPSILON
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        first = self._first[self.history.unseen(self._first)][:n]
        chosen = n - len(first) - int(np.ceil(random_share(self.epsilon, self.history) * n))
        if chosen > 0 and self._model.knows:
            best = self._fittest(SHORTLIST * n, rng)
            first = np.concatenate([first, apart(best, chosen)])
        return filled(self._space, self.history, first, n, rng)

    def _fittest(self, n: int, rng: np.random.Generator) -> Configs:
        """The n best new configs of all generations, best first."""
        known = self.history.best(int(self._count * KNOWN))
        fresh = self._space.sample(self._count - len(known), rng)
        configs = np.concatenate([known, fresh])
        values = self._score(configs)
        met_configs, met_values = [configs], [values]
        for _ in range(self._generations):
            configs = self._children(configs, values, rng)
            values = self._score(configs)
            met_configs.append(configs)
            met_values.append(values)
        rows = best_distinct(
            np.concatenate(met_configs), np.concatenate(met_values), n + len(self.history)
        )
        return rows[self.history.unseen(rows)][:n]

    def _children(self, configs: Configs, values: Scores, rng: np.random.Generator) -> Configs:
        elite = configs[np.argsort(-values, kind="stable")[: int(len(configs) * ELITE)]]
        count, shares = len(configs) - len(elite), fitness(values)
        mothers, fathers = (configs[rng.choice(len(configs), count, p=shares)] for _ in range(2))
        children = crossed(self._space, mothers, fathers, rng)
        mutated = rng.random(count) < MUTATED
        children[mutated] = self._space.neighbours(children[mutated], rng)
        return np.concatenate([elite, children])

    def observe(self, configs: Configs, times_s: Times) -> None:
        new = self.history.unseen(configs)
        configs, times_s = configs[new], times_s[new]
        if self._model.knows:
            self.epsilon = judged(self.epsilon, self._score(configs), times_s)
        self.history.add(configs, times_s)

    def _score(self, configs: Configs) -> Scores:
        return predictions(self._model, self._space, configs)

    def state(self) -> bytes:
        return packed({"epsilon": np.array(self.epsilon), **self.history.arrays()})

    def restore(self, state: bytes) -> None:
        arrays = unpacked(state)
        self.history = History.of(self._space, arrays)
        self.epsilon = float(arrays["epsilon"])


def fitness(values: Scores) -> NDArray[np.float64]:
    """`(n,)`: probability of being a parent, by rank; equal values have equal ones."""
    rank = np.searchsorted(np.sort(values), values, side="right") / len(values)
    weight = np.exp(PRESSURE * rank)
    shares: NDArray[np.float64] = weight / weight.sum()
    return shares

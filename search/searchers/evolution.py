"""Evolutionary search on the cost model: of each generation the fittest mate and mutate.

As in Ansor (arXiv:2006.06762), but parents are drawn by rank, so that no scale of scores matters,
and a quarter of each first generation are the best measured configs.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.batch_selection import Scores
from hlotune.search.searchers.crossover import crossed
from hlotune.search.searchers.guided import Guided

POPULATION = 2048
GENERATIONS = 8
KNOWN = 1 / 4
"""The best measured configs are this share of the first generation."""
ELITE = 1 / 16
"""This share of a generation lives on as it is."""
MUTATED = 0.6
"""This share of the children is then moved once more."""
PRESSURE = 4.0
"""The fittest has e to this power more children than the least fit."""


class Evolution(Guided):
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
        super().__init__(space, model, entropy, first)
        self._count, self._generations = population, generations

    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """The best configs of all generations."""
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
        return self._new(met_configs, met_values, n)

    def _children(self, configs: Configs, values: Scores, rng: np.random.Generator) -> Configs:
        elite = configs[np.argsort(-values, kind="stable")[: int(len(configs) * ELITE)]]
        count, shares = len(configs) - len(elite), fitness(values)
        mothers, fathers = (configs[rng.choice(len(configs), count, p=shares)] for _ in range(2))
        children = crossed(self._space, mothers, fathers, rng)
        mutated = rng.random(count) < MUTATED
        children[mutated] = self._space.neighbours(children[mutated], rng)
        return np.concatenate([elite, children])


def fitness(values: Scores) -> NDArray[np.float64]:
    """`(n,)`: probability of being a parent, by rank; equal values have equal ones."""
    rank = np.searchsorted(np.sort(values), values, side="right") / len(values)
    weight = np.exp(PRESSURE * rank)
    shares: NDArray[np.float64] = weight / weight.sum()
    return shares

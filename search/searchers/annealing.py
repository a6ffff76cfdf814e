"""Parallel simulated annealing on the cost model: thousands of chains, all scored at once.

What AutoTVM's annealer gets wrong is put right here.  The temperature is in units of the spread
of the scores, so it means the same for every model; chains live on from batch to batch and are
reheated only as far as they still differ; no score is dropped for its sign; a guard explores more
when the model ranks worse than chance.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.budget.budget import BATCH
from hlotune.search.searchers.batch_selection import SHORTLIST, Scores
from hlotune.search.searchers.crossover import crossed
from hlotune.search.searchers.guided import Guided
from hlotune.search.searchers.history import row_hash
from hlotune.search.searchers.random_search import legal_rows
from hlotune.search.searchers.searcher_state import Arrays

CHAINS = 2048
STEPS = 10
"""The moves of every chain for the largest batch: with the chains' own scores 22,528 configs.

A smaller batch has as much smaller a part of the walk, since chains live on, but `LEAST_STEPS` at
least.
"""
LEAST_STEPS = 3
HOT = 0.2
"""The temperature of the first step, in standard deviations of the scores; it falls to 0."""
RESTARTED = 1 / 8
"""A proposal moves this share of the chains, the worst, to the best measured configs."""
JOINED = 1 / 20
"""At every step this share of the chains, the worst, joins the best: few steps then suffice."""
CROSSED = 1 / 8
"""This share of the moves crosses a chain with another, better one."""


class Annealing(Guided):
    def __init__(
        self,
        space: Space,
        model: CostModel,
        entropy: tuple[int, ...],
        first: Configs,
        *,
        chains: int = CHAINS,
        steps: int = STEPS,
    ) -> None:
        super().__init__(space, model, entropy, first)
        self._count, self._steps = chains, steps
        self._chains: Configs = np.empty((0, self._first.shape[1]), np.int32)

    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """The best configs that all chains met, which move here."""
        configs, values = self._start(rng)
        met_configs, met_values = [configs], [values]
        steps = self._steps_for(n)
        for step in range(steps):
            join_best(configs, values)
            moved = self._moved(configs, values, rng)
            moved_values = self._score(moved)
            heat = HOT * float(np.std(values)) * (1 - step / steps)
            accepted = metropolis(moved_values - values, heat, rng)
            configs = np.where(accepted[:, None], moved, configs)
            values = np.where(accepted, moved_values, values)
            met_configs.append(moved)
            met_values.append(moved_values)
        self._chains = configs
        return self._new(met_configs, met_values, n)

    def _steps_for(self, n: int) -> int:
        """How many steps chains go for a shortlist of n configs; chains that have just begun go all
        of them.
        """
        share = n / (SHORTLIST * BATCH) if len(self._chains) else 1
        return min(self._steps, max(LEAST_STEPS, ceil(self._steps * share)))

    def _moved(self, configs: Configs, values: Scores, rng: np.random.Generator) -> Configs:
        """The next config of each chain: for most a neighbour, for some a child with one of the
        better half.
        """
        crossing = rng.random(len(configs)) < CROSSED
        moved = configs.copy()
        moved[~crossing] = self._space.neighbours(configs[~crossing], rng)
        better = np.argsort(-values, kind="stable")[: max(1, len(values) // 2)]
        partners = configs[rng.choice(better, size=int(crossing.sum()))]
        moved[crossing] = crossed(self._space, configs[crossing], partners, rng)
        return moved

    def _start(self, rng: np.random.Generator) -> tuple[Configs, Scores]:
        """The chains where they were left, and their scores.

        Where several chains stand at one place, all but one begin anew; the worst chains go to the
        best measured configs.
        """
        alone = self._chains[np.unique(row_hash(self._chains), return_index=True)[1]]
        fresh = self._space.sample(self._count - len(alone), rng)
        configs = np.concatenate([alone, fresh])
        values = self._score(configs)
        worst = np.argsort(values, kind="stable")[: int(len(configs) * RESTARTED)]
        best = self.history.best(len(worst))
        if not len(best):
            return configs, values
        configs[worst] = best[np.arange(len(worst)) % len(best)]
        values[worst] = self._score(configs[worst])
        return configs, values

    def _arrays(self) -> Arrays:
        return {**super()._arrays(), "chains": self._chains}

    def _restore(self, arrays: Arrays) -> None:
        super()._restore(arrays)
        self._chains = legal_rows(self._space, arrays["chains"])


def join_best(configs: Configs, values: Scores) -> None:
    """Moves the worst chains, in place, to where the best ones are."""
    order = np.argsort(values, kind="stable")
    count = int(len(order) * JOINED)
    worst, best = order[:count], order[len(order) - count :]
    configs[worst], values[worst] = configs[best], values[best]


def metropolis(gains: Scores, heat: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which moves to take: all that gain, and others with probability exp(gain / heat)."""
    luck = rng.random(len(gains))
    if heat <= 0:
        return gains >= 0
    accepted: NDArray[np.bool_] = luck < np.exp(np.minimum(gains / heat, 0))
    return accepted

"""Parallel simulated annealing on the cost model: thousands of chains, all scored at once.

What AutoTVM's annealer gets wrong is put right here.  The temperature is in units of the spread
of the scores, so it means the same for every model; chains live on from batch to batch and are
reheated only as far as they still differ; no score is dropped for its sign; a guard explores more
when the model ranks worse than chance.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.crossing import crossed
from hlotune.search.guard import EPSILON, judged, random_share
from hlotune.search.history import History, Times, row_hash
from hlotune.search.memory import packed, unpacked
from hlotune.search.picking import SHORTLIST, Scores, apart, best_distinct
from hlotune.search.random_search import batch_rng, filled, legal_rows

CHAINS = 2048
STEPS = 10
"""Moves of every chain for one proposal: with the chains' own scores 22,528 configs."""
HOT = 0.2
"""Temperature of the first step, in standard deviations of the chains' scores; it falls to zero."""
RESTARTED = 1 / 8
"""Share of the chains, the worst, that a proposal moves to the best measured configs."""
JOINED = 1 / 20
"""Share of the chains, the worst, that join the best at every step: few steps then suffice."""
CROSSED = 1 / 8
"""Share of the moves that cross a chain with another, better one."""


class Annealing:
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
        self._space, self._model, self._entropy = space, model, entropy
        self._count, self._steps = chains, steps
        self._first = legal_rows(space, first)
        self._chains: Configs = np.empty((0, self._first.shape[1]), np.int32)
        self.epsilon = EPSILON
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rng = batch_rng(self._entropy, len(self.history))
        first = self._first[self.history.unseen(self._first)][:n]
        chosen = n - len(first) - int(np.ceil(random_share(self.epsilon, self.history) * n))
        if chosen > 0 and self._model.knows:
            best = self._best_met(SHORTLIST * n, rng)
            first = np.concatenate([first, apart(best, chosen)])
        return filled(self._space, self.history, first, n, rng)

    def observe(self, configs: Configs, times_s: Times) -> None:
        new = self.history.unseen(configs)
        configs, times_s = configs[new], times_s[new]
        if self._model.knows:
            self.epsilon = judged(self.epsilon, self._score(configs), times_s)
        self.history.add(configs, times_s)

    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """Moves all chains; the n best new configs that they met, best first."""
        configs, values = self._start(rng)
        met_configs, met_values = [configs], [values]
        for step in range(self._steps):
            join_best(configs, values)
            moved = self._moved(configs, values, rng)
            moved_values = self._score(moved)
            heat = HOT * float(np.std(values)) * (1 - step / self._steps)
            accepted = metropolis(moved_values - values, heat, rng)
            configs = np.where(accepted[:, None], moved, configs)
            values = np.where(accepted, moved_values, values)
            met_configs.append(moved)
            met_values.append(moved_values)
        self._chains = configs
        rows = best_distinct(
            np.concatenate(met_configs), np.concatenate(met_values), n + len(self.history)
        )
        return rows[self.history.unseen(rows)][:n]

    def _moved(self, configs: Configs, values: Scores, rng: np.random.Generator) -> Configs:
        """A neighbour of most chains; of some, a child with a chain among the better half."""
        crossing = rng.random(len(configs)) < CROSSED
        moved = configs.copy()
        moved[~crossing] = self._space.neighbours(configs[~crossing], rng)
        better = np.argsort(-values, kind="stable")[: max(1, len(values) // 2)]
        partners = configs[rng.choice(better, size=int(crossing.sum()))]
        moved[crossing] = crossed(self._space, configs[crossing], partners, rng)
        return moved

    def _start(self, rng: np.random.Generator) -> tuple[Configs, Scores]:
        """The chains where they were left, and their scores.

        Where several stand at one place, all but one begin anew; the worst go to the best measured.
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

    def _score(self, configs: Configs) -> Scores:
        return predictions(self._model, self._space, configs)

    def state(self) -> bytes:
        return packed(
            {
                "epsilon": np.array(self.epsilon),
                "chains": self._chains,
                **self.history.arrays(),
            }
        )

    def restore(self, state: bytes) -> None:
        arrays = unpacked(state)
        self.history = History.of(self._space, arrays)
        self.epsilon = float(arrays["epsilon"])
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

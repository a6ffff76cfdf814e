"""Parallel simulated annealing on the cost model: thousands of chains, all scored at once.

What AutoTVM's annealer gets wrong is put right here.  The temperature is in units of the spread
of the scores, so it means the same for every model; chains live on from batch to batch and are
reheated only as far as they still differ; no score is dropped for its sign; a guard explores more
when the model ranks worse than chance.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.history import History, Times, row_hash, scores
from hlotune.search.memory import packed, unpacked
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
SHORTLIST = 8
"""The batch is picked from so many times its size of the best configs met."""
APART = 2
"""Columns in which the configs of a batch differ at least, as long as there is a choice."""
EPSILON = 0.05
"""Share of a batch that is drawn at random while the model ranks better than chance."""
EPSILON_MOST = 0.5

Scores = NDArray[np.float32]


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
        if not np.isfinite(self.history.best_s):
            return filled(self._space, self.history, first, n, rng)
        chosen = n - len(first) - int(np.ceil(self.epsilon * n))
        best = self._best_met(SHORTLIST * n, rng) if chosen > 0 else first[:0]
        return filled(
            self._space, self.history, np.concatenate([first, apart(best, chosen)]), n, rng
        )

    def observe(self, configs: Configs, times_s: Times) -> None:
        new = self.history.unseen(configs)
        configs, times_s = configs[new], times_s[new]
        if np.isfinite(self.history.best_s):
            self._guard(configs, times_s)
        self.history.add(configs, times_s)

    def _guard(self, configs: Configs, times_s: Times) -> None:
        """Doubles the random share where the model ranked worse than chance, else halves it."""
        if len(configs) < 8:
            return
        correlation = spearman(scores(times_s), predictions(self._model, self._space, configs))
        chance = 1 / np.sqrt(len(configs) - 1)  # one standard deviation of chance
        factor = 2.0 if correlation < -chance else 0.5
        self.epsilon = float(np.clip(self.epsilon * factor, EPSILON, EPSILON_MOST))

    def _best_met(self, n: int, rng: np.random.Generator) -> Configs:
        """Moves all chains; the n best new configs that they met, best first."""
        configs, values = self._start(rng)
        met_configs, met_values = [configs], [values]
        for step in range(self._steps):
            join_best(configs, values)
            moved = self._space.neighbours(configs, rng)
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


def best_distinct(configs: Configs, values: Scores, n: int) -> Configs:
    """The n distinct rows of largest value, largest first."""
    first = np.unique(row_hash(configs), return_index=True)[1]
    return configs[first[np.argsort(-values[first], kind="stable")[:n]]]


def apart(configs: Configs, n: int) -> Configs:
    """The first n rows that differ from each other in `APART` columns, then others in order."""
    if n <= 0:
        return configs[:0]
    near = np.zeros(len(configs), np.bool_)
    taken = np.zeros(len(configs), np.bool_)
    for row in range(len(configs)):
        if near[row]:
            continue
        taken[row] = True
        if taken.sum() == n:
            break
        near |= np.count_nonzero(configs != configs[row], axis=1) < APART
    order = np.argsort(~taken, kind="stable")
    return configs[order[:n]]

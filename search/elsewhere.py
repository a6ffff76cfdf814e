"""What the model likes best of structures that had few trials for what they gave so far.

A model that has seen one sketch alone ranks the others by guess, and all that it likes best may be
of one sketch.  So sketches take turns: the better the best trial of one is, and the fewer it had.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel, predictions
from hlotune.schedules.space import Configs, Space
from hlotune.search.history import History, scores

DRAWS = 1024
"""Configs drawn at random, of which each sketch offers its best."""
PRESSURE = 4
"""Power of the best score of a sketch to which it gets trials."""


def elsewhere(
    space: Space, model: CostModel, history: History, n: int, rng: np.random.Generator
) -> Configs:
    """Up to n new configs of the sketches whose turn it is."""
    drawn = space.sample(DRAWS, rng) if n > 0 else history.configs[:0]
    drawn = drawn[history.unseen(drawn)]
    if not len(drawn):
        return drawn
    drawn = drawn[np.argsort(-predictions(model, space, drawn), kind="stable")]
    # Sketches in the order in which the model likes them: of equal claims the first counts.
    sketches, first = np.unique(drawn[:, 0], return_index=True)
    sketches = sketches[np.argsort(first)]
    rows = [np.flatnonzero(drawn[:, 0] == sketch) for sketch in sketches]
    taken = turns(*standing(history, sketches), np.array([len(r) for r in rows]), n)
    return drawn[[rows[k][i] for k, i in taken]]


def standing(
    history: History, sketches: NDArray[np.int32]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Best score and number of trials of each sketch; 1 for one that had none yet."""
    is_of = history.configs[:, 0] == sketches[:, None]
    best = np.where(is_of, scores(history.times_s), 0.0).max(axis=1, initial=0.0)
    count = is_of.sum(axis=1)
    return np.where(count > 0, best, 1.0), count


def turns(
    best: NDArray[np.float64], count: NDArray[np.int64], offered: NDArray[np.int64], n: int
) -> list[tuple[int, int]]:
    """Whose turn it is, n times, and which of its own offers it makes."""
    made = np.zeros_like(count)
    result: list[tuple[int, int]] = []
    for _ in range(min(n, int(offered.sum()))):
        claim = np.where(made < offered, best**PRESSURE / (1 + count + made), -1.0)
        whose = int(claim.argmax())
        result.append((whose, int(made[whose])))
        made[whose] += 1
    return result

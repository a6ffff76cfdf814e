"""How far to trust a model: the share of a batch that does not follow its ranking.

While the model ranks better than chance, this part of the batch is the model's best of sketches
that had few trials (see `guided.py`); else it is drawn at random.
"""

import numpy as np

from hlotune.costmodel.metrics import spearman
from hlotune.search.searchers.batch_selection import Scores
from hlotune.search.searchers.history import History, Times, scores

EPSILON = 0.05
"""Share of a batch that explores while the model ranks better than chance."""
EPSILON_MOST = 0.5
OPENING = 0.25
"""The same share for the first batch of a kernel, of which the model has seen nothing yet."""
FEWEST = 8
"""With fewer trials a batch says nothing about a ranking."""


def judged(epsilon: float, predicted: Scores, times_s: Times) -> float:
    """The exploring share after a batch whose times the model had not seen yet.

    It doubles where the model ranked worse than chance by one standard deviation, and is halved
    where it ranked no worse than chance.  In between it stays as it was: a batch of near equals may
    only look badly ranked.
    """
    if len(times_s) < FEWEST:
        return epsilon
    correlation = spearman(scores(times_s), predicted)
    chance = 1 / np.sqrt(len(times_s) - 1)
    if -chance <= correlation < 0:
        return epsilon
    factor = 2.0 if correlation < 0 else 0.5
    return float(np.clip(epsilon * factor, EPSILON, EPSILON_MOST))


def exploring_share(epsilon: float, history: History) -> float:
    return epsilon if len(history) else max(epsilon, OPENING)

"""How well predictions rank measured scores; larger is faster in both.

Where a figure is not defined, it is that of chance, or nan where chance is no less than all.
"""

from math import nan

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float32] | NDArray[np.float64]


def pairwise_accuracy(scores: Values, predictions: Values) -> float:
    """Share of pairs of different scores that are put in order; a tie of predictions is half."""
    truth = np.sign(scores[:, None] - scores[None, :])
    guess = np.sign(predictions[:, None] - predictions[None, :])
    differ = np.triu(truth != 0, k=1)
    if not differ.any():
        return 0.5
    return float(np.mean((1 + truth[differ] * guess[differ]) / 2))


def spearman(scores: Values, predictions: Values) -> float:
    """Correlation of ranks in -1 .. 1."""
    if _flat(scores) or _flat(predictions):
        return 0.0
    both = np.stack((_ranks(scores), _ranks(predictions)))
    return float(np.asarray(np.corrcoef(both))[1, 0])


def mean_spearman(scores: Values, predictions: Values, groups: NDArray[np.int32]) -> float:
    """Mean over the groups of rows."""
    parts = [groups == g for g in np.unique(groups)]
    return float(np.mean([spearman(scores[p], predictions[p]) for p in parts]))


class GroupedScores:
    """Scores of groups of rows, and how well predictions rank them: as `mean_spearman`, but what
    does not change is computed once.

    Groups are sorted: their rows stand together.
    """

    def __init__(self, scores: Values, groups: NDArray[np.int32]) -> None:
        self._number = np.unique(groups, return_inverse=True)[1]
        self._sizes = np.bincount(self._number)
        self._ranks = self._centred(scores)
        self._spread = self._sums(self._ranks**2)

    def correlation(self, predictions: Values) -> float:
        """Mean of the groups' correlations of ranks."""
        ranks = self._centred(predictions)
        spreads = np.sqrt(self._spread * self._sums(ranks**2))
        together = self._sums(self._ranks * ranks)
        return float(np.mean(np.where(spreads > 0, together / np.maximum(spreads, 1e-9), 0)))

    def _sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._number, values).astype(np.float64)

    def _centred(self, values: Values) -> NDArray[np.float64]:
        """Ranks within groups, about their mean; equal values share the mean of theirs."""
        ranks = _ranks_in_order(values, np.lexsort((values, self._number)), self._number)
        means = np.cumsum(self._sizes) - (self._sizes - 1) / 2
        centred: NDArray[np.float64] = ranks - means[self._number]
        return centred


def kendall(scores: Values, predictions: Values) -> float:
    """Kendall's tau-b in -1 .. 1."""
    from scipy import stats  # loaded by those who ask for it: it takes half a second

    if _flat(scores) or _flat(predictions):
        return 0.0
    return float(stats.kendalltau(scores, predictions)[0])


def recall_at(k: int, scores: Values, predictions: Values) -> float:
    """Share of the k best by score that are among the k best by prediction; nan where k are all."""
    if len(scores) <= k:
        return nan
    best = set(np.argsort(-scores, kind="stable")[:k].tolist())
    return len(best & set(np.argsort(-predictions, kind="stable")[:k].tolist())) / k


def top1_regret(scores: Values, predictions: Values) -> float:
    """How much slower the first choice is than the best: 0.25 is 25 % more time, inf a failure."""
    chosen = float(scores[int(np.argmax(predictions))])
    return float(np.max(scores)) / chosen - 1 if chosen > 0 else float("inf")


def _ranks(values: Values) -> NDArray[np.float64]:
    """Places in ascending order from 1 on; equal values share the mean of theirs.

    As in `scipy.stats`, whose checks take longer than a round of boosting.
    """
    one_group = np.zeros(len(values), np.intp)
    return _ranks_in_order(values, np.argsort(values, kind="stable"), one_group)


def _ranks_in_order(
    values: Values, order: NDArray[np.intp], groups: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Places from 1 on in an order that sorts values within groups, which are sorted themselves."""
    ordered = values[order]
    differ = (ordered[1:] != ordered[:-1]) | (groups[1:] != groups[:-1])
    starts = np.flatnonzero(np.concatenate([[True], differ]))
    ends = np.append(starts[1:], len(values))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat((starts + 1 + ends) / 2, ends - starts)
    return ranks


def _flat(values: Values) -> bool:
    return len(values) < 2 or bool(np.ptp(values) == 0)

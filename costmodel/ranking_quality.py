"""How good a model is on one kernel it has not seen, as numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite, nan

import numpy as np

from hlotune.costmodel.metrics import (
    Values,
    kendall,
    pairwise_accuracy,
    recall_at,
    spearman,
    top1_regret,
)

CLOSE = 0.05
"""Times that differ by less are not told apart among the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How good a ranking of a kernel's recorded trials is; nan where it is not defined."""

    pairwise_accuracy: float
    fastest_quarter_accuracy: float
    """Pairwise accuracy among the fastest quarter, pairs closer than 5 % left out."""
    spearman: float
    kendall: float
    recall_1: float
    recall_5: float
    recall_30: float
    top1_regret: float
    r2_log_time: float
    """Share of the variance of log time that a rising line through the predictions explains,
    failures left out: the level and the unit of a kernel's times are nothing that a ranking could
    know, but which way is faster is.
    """


def quality(scores: Values, predictions: Values) -> Quality:
    """Scores are best time / time, 0 for failures."""
    return Quality(
        pairwise_accuracy=pairwise_accuracy(scores, predictions),
        fastest_quarter_accuracy=fastest_quarter_accuracy(scores, predictions),
        spearman=spearman(scores, predictions),
        kendall=kendall(scores, predictions),
        recall_1=recall_at(1, scores, predictions),
        recall_5=recall_at(5, scores, predictions),
        recall_30=recall_at(30, scores, predictions),
        top1_regret=top1_regret(scores, predictions),
        r2_log_time=r2_log_time(scores, predictions),
    )


def fastest_quarter_accuracy(scores: Values, predictions: Values) -> float:
    fast = (scores >= np.quantile(scores, 0.75)) & (scores > 0)
    logs, guesses = np.log(scores[fast]), predictions[fast]
    apart = np.triu(np.abs(logs[:, None] - logs[None, :]) > np.log1p(CLOSE), k=1)
    if not apart.any():
        return nan
    right = np.sign(logs[:, None] - logs[None, :]) * np.sign(guesses[:, None] - guesses[None, :])
    return float(np.mean((1 + right[apart]) / 2))


def r2_log_time(scores: Values, predictions: Values) -> float:
    worked = scores > 0
    logs, guesses = np.log(scores[worked]), predictions[worked]
    if len(logs) < 3 or np.ptp(logs) == 0:
        return nan
    if np.ptp(guesses) == 0:
        return 0.0
    return max(0.0, float(np.corrcoef(logs, guesses)[0, 1])) ** 2


def mean_quality(of: Sequence[Quality]) -> Quality:
    """Mean over kernels of what is defined; of the regret, which may be infinite, the median."""
    columns = {f.name: [asdict(q)[f.name] for q in of] for f in fields(Quality)}
    means = {name: _mean([x for x in xs if isfinite(x)]) for name, xs in columns.items()}
    return Quality(**{**means, "top1_regret": float(np.median(columns["top1_regret"]))})


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else nan

"""Pairs of rows of one kernel, and what a ranking of them costs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

PARTNERS = 8
"""Drawn for each row: a power of two."""
LEVEL = 0.1
"""Weight of the squared error of the level beside the pairs."""

Labels = NDArray[np.float32]
Groups = NDArray[np.int32]
Numbers = NDArray[np.intp]


def drawn_partners(groups: Groups, partners: int = PARTNERS) -> Callable[[Generator], Numbers]:
    """What draws `(n, partners)` numbers of rows for each row, within groups, which are sorted."""
    starts = np.searchsorted(groups, groups, side="left")[:, None]
    sizes = np.searchsorted(groups, groups, side="right")[:, None] - starts

    def drawn(rng: Generator) -> Numbers:
        numbers: Numbers = (rng.random((len(groups), partners)) * sizes).astype(np.intp)
        numbers += starts
        return numbers

    return drawn


def both_gradients(
    labels: Labels, groups: Groups
) -> Callable[[NDArray[np.float32], Any], tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """What xgboost asks for: logistic loss on pairs plus squared error on labels."""
    rng, draw, count = np.random.default_rng(0), drawn_partners(groups), len(labels)

    def gradients(
        margins: NDArray[np.float32], _: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        partner = draw(rng)
        better = np.sign(labels[:, None] - labels.take(partner))  # 0 of equals: they teach nothing
        ahead = better * (margins[:, None] - margins.take(partner))
        doubt = 1 / (1 + np.exp(np.clip(ahead, -30, 30)))
        bent = np.abs(better) * np.maximum(doubt * (1 - doubt), 1e-6)
        pull = (better * doubt).astype(np.float64)
        bent = bent.astype(np.float64)
        at = partner.ravel()
        grad = np.bincount(at, pull.ravel(), count) - sums(pull)
        curve = np.bincount(at, bent.ravel(), count) + sums(bent)
        grad = grad / PARTNERS + LEVEL * (margins - labels)
        return grad.astype(np.float32), (curve / PARTNERS + LEVEL).astype(np.float32)

    return gradients


def sums(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of each row of `(n, partners)`, by halves: NumPy sums short rows one by one."""
    while pairs.shape[1] > 1:
        pairs = pairs[:, 0::2] + pairs[:, 1::2]
    return pairs[:, 0]

"""Pairs of rows of one kernel, and what a ranking of them costs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTNERS = 8
"""Drawn for each row."""
LEVEL = 0.1
"""Weight of the squared error of the level beside the pairs."""

Labels = NDArray[np.float32]
Groups = NDArray[np.int32]
Pairs = tuple[NDArray[np.intp], NDArray[np.intp]]


def drawn_pairs(
    labels: Labels, groups: Groups, rng: np.random.Generator, partners: int = PARTNERS
) -> Pairs:
    """Numbers of rows (better, worse), drawn within groups, which are sorted."""
    starts = np.searchsorted(groups, groups, side="left")
    sizes = np.searchsorted(groups, groups, side="right") - starts
    first = np.repeat(np.arange(len(groups)), partners)
    second = np.repeat(starts, partners) + (
        rng.random(len(first)) * np.repeat(sizes, partners)
    ).astype(np.intp)
    differ = labels[first] != labels[second]
    first, second = first[differ], second[differ]
    swap = labels[first] < labels[second]
    return np.where(swap, second, first), np.where(swap, first, second)


def both_gradients(
    labels: Labels, groups: Groups
) -> Callable[[NDArray[np.float32], Any], tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """What xgboost asks for: logistic loss on pairs plus squared error on labels."""
    rng = np.random.default_rng(0)
    count = len(labels)

    def gradients(
        margins: NDArray[np.float32], _: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        better, worse = drawn_pairs(labels, groups, rng)
        doubt = 1 / (1 + np.exp(np.clip(margins[better] - margins[worse], -30, 30)))
        bent = np.maximum(doubt * (1 - doubt), 1e-6)
        pull = np.bincount(worse, doubt, count) - np.bincount(better, doubt, count)
        curve = np.bincount(worse, bent, count) + np.bincount(better, bent, count)
        away = margins - labels
        grad = pull / PARTNERS + LEVEL * away
        return grad.astype(np.float32), (curve / PARTNERS + LEVEL).astype(np.float32)

    return gradients

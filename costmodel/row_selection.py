"""Which rows a model learns between two batches, where more are known than there is time for."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def kept(
    scores: NDArray[np.float32], groups: NDArray[np.int32], most: int
) -> NDArray[np.intp] | slice:
    """Numbers of the rows that are learned, in their order: all, as long as there are `most`.

    Else each group has its share: half of it are the group's best, half the newest others.  So a
    kernel that waits while others are searched is not forgotten, and what makes it fast least of
    all.

    Args:
        scores: `(n,)`, 0 for failures.
        groups: `(n,)`, oldest row first.
    """
    if len(scores) <= most:
        return slice(None)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    share = fair_share([len(rows) for rows in members], most)
    return np.sort(np.concatenate([_of_one(scores, rows, share) for rows in members]))


def fair_share(sizes: Sequence[int], most: int) -> int:
    """Rows that each group may keep, so that all keep about `most`: what small groups do not need
    is for the others.
    """
    left = most
    for groups, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * groups > left:
            return max(1, left // groups)
        left -= size
    return max(sizes)


def _of_one(scores: NDArray[np.float32], rows: NDArray[np.intp], share: int) -> NDArray[np.intp]:
    if len(rows) <= share:
        return rows
    by_score = rows[np.argsort(-scores[rows], kind="stable")]
    best, others = by_score[: share // 2], by_score[share // 2 :]
    return np.concatenate([best, np.sort(others)[len(rows) - share :]])

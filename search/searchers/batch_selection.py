"""Selects a batch from scored configs: the best distinct ones that differ from each other."""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Features
from hlotune.schedules.spaces.space import Configs
from hlotune.search.searchers.history import row_hash

SHORTLIST = 8
"""A batch is picked from so many times as many of the best configs met."""
APART = 2
"""The configs of a batch differ in at least so many columns, as long as there is a choice."""

Scores = NDArray[np.float32]


def best_distinct(configs: Configs, values: Scores) -> Configs:
    """The distinct rows, of largest value first."""
    first = np.unique(row_hash(configs), return_index=True)[1]
    return configs[first[np.argsort(-values[first], kind="stable")]]


def apart(configs: Configs, features: Features, n: int) -> Configs:
    """The first n rows that differ from each other in `APART` columns, then others in order.

    Rows with equal features count as near each other, since the model cannot tell them apart.
    """
    if n <= 0:
        return configs[:0]
    alike = row_hash(np.ascontiguousarray(features, np.float32).view(np.int32))
    near = np.zeros(len(configs), np.bool_)
    taken = np.zeros(len(configs), np.bool_)
    for row in range(len(configs)):
        if near[row]:
            continue
        taken[row] = True
        if taken.sum() == n:
            break
        near |= np.count_nonzero(configs != configs[row], axis=1) < APART
        near |= alike == alike[row]
    order = np.argsort(~taken, kind="stable")
    return configs[order[:n]]

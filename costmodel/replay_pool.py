"""A device without hardware: a kernel's recorded trials, of which a model chooses the next batch.

Nothing is made up: each time was measured once.  What it cannot show is what a search would have
found outside the pool.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs, count, taken
from hlotune.costmodel.model import CostModel


def best_so_far(scores: NDArray[np.float32], order: NDArray[np.intp]) -> NDArray[np.float32]:
    """`(n,)`: the best score among the first trials in this order."""
    return np.maximum.accumulate(scores[order])


def drawn(
    model: CostModel, inputs: Inputs, scores: NDArray[np.float32], batch: int = 64
) -> NDArray[np.intp]:
    """All rows in the order in which a model measures them, batch by batch, learning after each.

    Where the model knows nothing, the rows come in the order in which they stand.
    """
    left = np.arange(count(inputs))
    order = left[:0]
    while len(left):
        ranked = np.argsort(-model.predict(taken(inputs, left)), kind="stable")
        order = np.concatenate([order, left[ranked[:batch]]])
        left = np.setdiff1d(left, order)
        known = scores[order]
        relative = known / known.max() if known.max() > 0 else known
        model.fit(taken(inputs, order), relative, np.zeros(len(order), np.int32))
    return order

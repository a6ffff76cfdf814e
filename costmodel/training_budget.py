"""How long a model may learn, and which rows it keeps back to know when to stop."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Effort = Literal["batch", "offline"]
"""`batch`: part of a second between two batches of a search, mostly on top of a loaded model.
`offline`: minutes, on everything a database holds."""

ONE_IN = 5
"""Share of kernels, or of rows, that are held out."""
FEWEST_ROWS = 40


Rows = NDArray[np.bool_]
"""`(n,)`: which rows are meant."""


def group_numbers(kernels: Sequence[str]) -> list[int]:
    """A number for each group of trials, which are those of one kernel on one machine.

    Groups of one kernel have one remainder by `ONE_IN`, so that they are held out together:
    0, 6 and 10 for the kernels a, b and a again.
    """
    place = {kernel: n for n, kernel in enumerate(sorted(set(kernels)))}
    return [ONE_IN * n + place[kernel] % ONE_IN for n, kernel in enumerate(kernels)]


def held_out(groups: NDArray[np.int32], effort: Effort) -> Rows:
    """The rows that decide when to stop, and that are not learned from until then; none where
    there are too few.  Of several parts that might be, the last.
    """
    parts = held_out_in_turn(groups, effort)
    return parts[-1] if parts else np.zeros(len(groups), np.bool_)


def held_out_in_turn(groups: NDArray[np.int32], effort: Effort) -> list[Rows]:
    """The parts that are held out one after the other, where one tells too little.

    Offline they are whole kernels, those whose groups have one remainder by `ONE_IN` together, for
    the model is meant for kernels that it has not seen: each kernel once, and none of a kernel that
    is alone.  Between batches the model is meant for the very kernels that it learns from, so that
    they are single rows, a part of them once.
    """
    if effort == "offline":
        turns = np.unique(groups % ONE_IN)
        return [groups % ONE_IN == turn for turn in turns] if len(turns) > 1 else []
    if len(groups) >= FEWEST_ROWS:
        return [np.arange(len(groups)) % ONE_IN == ONE_IN - 1]
    return []


def log_scores(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """log2 of a score, which is the log of time but for its sign and a constant of the kernel.

    What is over 64 times slower than the best stands at -6, and failures at -7.
    """
    logs = np.log2(np.maximum(scores, 2.0**-6))
    return np.where(scores > 0, logs, -7).astype(np.float32)

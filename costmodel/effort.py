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
    """The rows that decide when to stop, and that are not learned from until then.

    Offline they are whole kernels, those whose groups have one remainder by `ONE_IN` together, for
    the model is meant for kernels it has not seen.  Between batches it is meant for the very
    kernels that it learns from, so they are single rows.  None where there are too few to hold out
    any.
    """
    if _by_kernel(groups, effort):
        return _in_turn(groups, ONE_IN - 1)
    if len(groups) >= FEWEST_ROWS:
        return _in_turn(np.arange(len(groups)), ONE_IN - 1)
    return np.zeros(len(groups), np.bool_)


def held_out_in_turn(groups: NDArray[np.int32], effort: Effort) -> list[Rows]:
    """Offline each kernel once, since a fifth of them tells too little; else as above."""
    if _by_kernel(groups, effort):
        return [_in_turn(groups, turn) for turn in range(ONE_IN)]
    return [held_out(groups, effort)]


def _by_kernel(groups: NDArray[np.int32], effort: Effort) -> bool:
    return effort == "offline" and len(np.unique(groups % ONE_IN)) == ONE_IN


def _in_turn(numbers: NDArray[np.int32] | NDArray[np.intp], turn: int) -> Rows:
    held: Rows = numbers % ONE_IN == turn
    return held


def log_scores(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """log2 of a score, which is the log of time but for its sign and a constant of the kernel.

    What is over 64 times slower than the best stands at -6, and failures at -7.
    """
    logs = np.log2(np.maximum(scores, 2.0**-6))
    return np.where(scores > 0, logs, -7).astype(np.float32)

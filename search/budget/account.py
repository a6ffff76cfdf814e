"""What the batches of a kernel cost and brought, kept with the searcher's state.

A run that is taken up again knows from it what the budget was spent on, and so chooses as if it had
never stopped.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hlotune.search.searchers.searcher_state import packed, unpacked


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch."""

    ended_s: float
    """On the clock of the run: tells the order of batches of several kernels."""
    wall_s: float
    trials: int
    failures: int
    best_s: float
    """Best time of the kernel after it."""
    probe_s: float = 0.0
    """Median of a fixed probe's time beside its trials; 0 where it was not timed."""


def sealed(state: bytes, entries: Sequence[Entry]) -> bytes:
    """A searcher's state and the account of its kernel as one."""
    rows = np.array([astuple(e) for e in entries], np.float64).reshape(-1, 6)
    return packed({"searcher": np.frombuffer(state, np.uint8), "account": rows})


def opened(data: bytes) -> tuple[bytes, tuple[Entry, ...]]:
    """What `sealed` made one of, also before probes were timed; a state without an account is taken
    as it is.

    Raises ValueError where the bytes are neither.
    """
    arrays = unpacked(data)
    if "account" not in arrays:
        return data, ()
    entries = (
        Entry(float(e), float(w), int(t), int(f), *map(float, rest))
        for e, w, t, f, *rest in arrays["account"]
    )
    return arrays["searcher"].tobytes(), tuple(entries)

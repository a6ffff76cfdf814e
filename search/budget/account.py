"""What the batches of a kernel cost and brought, kept with the searcher's state.

A run that is resumed reads from it how the budget was spent, and so makes the choices of a run that
never stopped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from hlotune.search.searchers.searcher_state import packed, unpacked


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch."""

    ended_s: float
    """The time on the run's clock at its end, which orders the batches of several kernels."""
    wall_s: float
    trials: int
    failures: int
    best_s: float
    """The best time of the kernel after the batch."""
    probe_s: float = 0.0
    """Median of a fixed probe's time beside its trials; 0 where it was not timed."""


def searched_s(accounts: Iterable[Sequence[Entry]]) -> float:
    """The seconds of all batches of a run, also of those before it was resumed."""
    return sum(entry.wall_s for account in accounts for entry in account)


def sealed(state: bytes, entries: Sequence[Entry]) -> bytes:
    """A searcher's state and the account of its kernel as one."""
    rows = np.array([astuple(e) for e in entries], np.float64).reshape(-1, 6)
    return packed({"searcher": np.frombuffer(state, np.uint8), "account": rows})


def opened(data: bytes) -> tuple[bytes, tuple[Entry, ...]]:
    """The searcher's state and the account that `sealed` joined, also where no probe was timed yet;
    a state without an account is taken as it is.

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

"""What comes true soon, whoever else has the processors for a while."""

from collections.abc import Callable
from time import monotonic, sleep

SOON_S = 10.0
"""Another process may have a processor for turns of some milliseconds, one after the other."""


def soon(condition: Callable[[], bool], pause_s: float = 0.0) -> bool:
    """Whether a condition holds within `SOON_S`; there is a pause ahead of each look."""
    latest = monotonic() + SOON_S
    while monotonic() < latest:
        sleep(pause_s)
        if condition():
            return True
    return False

"""Limits of time that stand still while this process does.

For waits alone, each piece of which says how long it was meant to take; `suspend_clock.py` finds
absences while this process is at work.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

BEAT_S = 1.0
"""A wait is cut into pieces of this length."""


class Late(Exception):
    """What was waited for did not come in time."""


@dataclass
class Patience:
    """How much longer to wait for another process.

    A piece of a wait counts for as long as it was meant to take, however long it took: who comes
    back late was suspended, by Ctrl-Z, in a frozen group of processes or on a host that stood
    still, and its worker with it.
    """

    left_s: float
    now: Callable[[], float] = time.monotonic

    def wait(self, is_there: Callable[[float], object]) -> None:
        """Until something is there; `is_there` waits for it as many seconds as it is given.

        Raises Late where the time is up before.
        """
        while True:
            asked_s, start_s = max(0.0, min(BEAT_S, self.left_s)), self.now()
            if is_there(asked_s):
                self.left_s -= min(asked_s, self.now() - start_s)
                return
            self.left_s -= asked_s
            if self.left_s <= 0:
                raise Late

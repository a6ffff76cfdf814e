"""Samples of the default during which XLA's threads shared a processor, and taken again.

A call of XLA's wakes threads of its pool.  Linux may wake one on the processor of the caller and
leave it there while a second processor is idle (`run_queue.py`); then the default takes twice as
long.  A process that calls nothing but the default meets both states as well, for some calls or for
seconds, and what a kernel can win is to be measured against the faster one.
"""

from collections.abc import Callable

from hlotune.measure.machine.affinity import parted, threads_named
from hlotune.measure.machine.run_queue import RunQueue
from hlotune.measure.timing.timing import Clock

TRIES = 4
MOST_LOST = 0.25
"""Of the time of a call: what its threads may lose."""
LEAST_LOST_S = 50e-6
"""What a few threads need to wake: to lose that is no sign of anything."""
POOL = "tf_XLAEigen"
"""Name of the threads of XLA's pool, which a call shares its work with."""


class Retaken:
    """The calls of one program, each taken again while its threads lose too much time.

    Args:
        queue: tells what the threads of the process lost.
        call: calls the program and waits for it; nobody times that.
    """

    def __init__(self, queue: RunQueue, call: Callable[[], object]) -> None:
        self._queue, self._call = queue, call
        self._is_again = False

    def ready(self) -> None:
        """To be called right before the call that is timed."""
        if self._is_again:
            with parted(threads_named(POOL)):
                self._call()
        self._queue.begin()

    def clock(self, once: Clock) -> Clock:
        """`once` has called `ready` and gives the seconds of the call."""

        def clock() -> float:
            for attempt in range(TRIES):
                self._is_again = attempt > 0
                seconds = once()
                if self._queue.lost_s() <= max(MOST_LOST * seconds, LEAST_LOST_S):
                    break
            return seconds

        return clock

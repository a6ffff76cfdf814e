"""What comes right before a call that is timed, and calls that are made again unless they take a
second.

A call of XLA's wakes threads of its pool.  Linux may wake one on the processor of the caller and
leave it there while a second processor is idle (`run_queue.py`); then the default takes twice as
long.  A process that calls nothing but the default meets both states as well, for some calls or for
seconds, and what a kernel can win is to be measured against the faster one.
"""

import time
from collections.abc import Callable

from hlotune.measure.machine.affinity import parted, threads_named
from hlotune.measure.machine.run_queue import RunQueue
from hlotune.measure.timing.timing import FEW_S, ONCE_S, Clock

TRIES = 4
MOST_LOST = 0.25
"""The share of a call's time that its threads may lose."""
LEAST_LOST_S = 50e-6
"""What a few threads need to wake: to lose that is no sign of anything."""
POOL = "tf_XLAEigen"
"""Name of the threads of XLA's pool, which a call shares its work with."""

RUN_UP_S = 5e-4
MOST_RUN_UP = 4
MOST_IN_VAIN = 2
"""So many long calls in a row that no try makes better meet other processes, as the next will."""
ALONE_S = 20e-3
"""A call of so many seconds is as long behind anything as behind another one."""


def nothing() -> None:
    """Stands for a preparation where none is needed before a call."""


def run_up(call: Callable[[], object]) -> bool:
    """Calls that nobody times: the next one finds threads, code and freed memory as in a loop of
    calls.  Some four of short kernels, one of half a millisecond and more.

    Returns whether the calls are short.
    """
    end = time.perf_counter() + RUN_UP_S
    for _ in range(MOST_RUN_UP):
        call()
        if time.perf_counter() > end:
            return False
    return True


class RunUp:
    """A run-up ahead of each sample, until its calls proved to take so long that none is needed.

    Two have to, one after another, unless one takes as long as `FEW_S`: a first call may take many
    times as long as all others.
    """

    def __init__(self, call: Callable[[], object], *, is_long: bool = False) -> None:
        """`is_long` says that calls are known to be long."""
        self._call, self._is_long = call, is_long
        self._last_s = 0.0

    def __call__(self) -> bool:
        """Returns whether the calls are short."""
        if self._is_long:
            return False
        start = time.perf_counter()
        short = run_up(self._call)
        took_s = 0.0 if short else time.perf_counter() - start
        self._is_long = took_s >= FEW_S or min(took_s, self._last_s) >= ALONE_S
        self._last_s = took_s
        return short


class Retaken:
    """The calls of one program, each made again while its threads lose too much time.

    Args:
        queue: tells what the threads of the process lost.
        before: comes before the first try of each call.
        part: comes before another try, with XLA's threads apart: it wakes them, so that this is
            where they ran last.
        settle: a call that nobody times, right before the one that is timed, where `before` or
            `part` says that calls are short.  To ask what threads have lost, and to bring them
            together, pushes code out of the inner caches: a call of 8 microseconds takes 18 then.
    """

    def __init__(
        self,
        queue: RunQueue,
        before: Callable[[], object] = nothing,
        part: Callable[[], object] = nothing,
        settle: Callable[[], object] = nothing,
    ) -> None:
        self._queue, self._before, self._part, self._settle = queue, before, part, settle
        self._is_again = False
        self._in_vain = 0
        """Long calls in a row whose last try lost too much, too."""

    def ready(self, then: Callable[[], object] = nothing) -> None:
        """Prepares the threads right before the call that is timed; `then` brings them together."""
        self._queue.follow()
        if self._is_again:
            with parted(threads_named(POOL)):
                short = self._part()
        else:
            short = self._before()
        self._queue.begin()
        then()
        if short:
            self._settle()

    def clock(self, once: Clock, calls: int = 1) -> Clock:
        """`once` has called `ready`, and gives the seconds of a call; of so many, the mean."""

        def clock() -> float:
            for attempt in range(1 if self._in_vain >= MOST_IN_VAIN else TRIES):
                self._is_again = attempt > 0
                seconds = once()
                lost_s = self._queue.lost_s()
                is_lost = lost_s > max(MOST_LOST * seconds * calls, LEAST_LOST_S)
                if not is_lost or seconds >= ONCE_S:
                    break
            self._in_vain = self._in_vain + 1 if is_lost and seconds >= ALONE_S else 0
            return seconds

        return clock

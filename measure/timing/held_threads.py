"""Calls of kernels as on a quiet machine, where other processes take turns on the processors.

A process that keeps a processor busy has it for some milliseconds at a time.  A call that needs all
of our threads takes up to twice as long meanwhile, and waiting for a quiet machine is in vain.  So
each call begins right after all threads have been on their processors.  A short call in which one
of them waited all the same is made again; of a long one what they waited is taken off, the longest
wait of a thread, for the others wait for it at the end of a loop.
"""

import threading
import time
from collections.abc import Callable, MutableMapping
from weakref import WeakKeyDictionary, finalize

from hlotune.codegen.runtime.dispatcher import crew_threads
from hlotune.measure.machine.thread_waits import ThreadWaits
from hlotune.measure.timing.timing import Clock
from hlotune.measure.timing.wake_threads import meeting
from hlotune.schedules.targets.cpu import CpuTarget

LONGEST_S = 0.02
"""Longer than the turn of another process.  Where the threads have not come by then, the call is
made all the same."""
AT_ONCE_S = 5e-4
"""Threads that meet take less; in more, one of them lost its processor again."""
TRIES = 4
"""Calls in place of one in which a thread waited."""
WAITED = 0.02
"""A call is still a good one where its threads waited for this share of its time at most."""
MADE_ONCE_FROM_S = 2e-3
"""A call that takes longer, without its waits, is not made again: long calls rarely go without a
wait.
"""


class HeldThreads:
    """The threads of a process's kernels, and the thread that calls them.

    Args:
        meet: brings the threads together, and tells whether all came.
        waits: what the threads, the calling one among them, waited for their processors.
    """

    def __init__(
        self,
        meet: Callable[[], bool],
        waits: ThreadWaits,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._meet, self._waits, self._now = meet, waits, now
        self._before: tuple[int, ...] = ()

    def begin(self) -> bool:
        """Returns while all threads are on their processors; False where that cannot be had."""
        start_s = looked_s = self._now()
        while True:
            self._before = self._waits.look()
            came, now_s = self._meet(), self._now()
            if came and now_s - looked_s < AT_ONCE_S:
                return True
            if now_s - start_s > LONGEST_S:
                return False
            looked_s = now_s

    def waited_s(self) -> float:
        """What the thread waited for its processor that waited longest, since `begin` ended."""
        return self._waits.longest_s(self._before)

    def clock(self, once: Clock) -> Clock:
        """Seconds of a call, without what a thread waited.

        Args:
            once: has called `begin` right before the call that it times.
        """

        def clock() -> float:
            for _ in range(TRIES):
                seconds, waited_s = once(), self.waited_s()
                if waited_s <= WAITED * seconds:
                    return seconds
                if seconds - waited_s > MADE_ONCE_FROM_S:
                    break
            # What is longer than the call was waited for behind it.
            return seconds - waited_s if waited_s < seconds else seconds

        return clock


_known: MutableMapping[threading.Thread, dict[CpuTarget, HeldThreads]] = WeakKeyDictionary()
"""By the thread that calls, for as long as there is one: its accounts are files that stay open."""


def held_threads(target: CpuTarget) -> HeldThreads:
    """The threads of this process, for kernels on so many threads, and the thread that asks."""
    calling = threading.current_thread()
    known = _known.setdefault(calling, {})
    if target not in known:
        known[target] = _held(target, calling.native_id or 0)
    return known[target]


def _held(target: CpuTarget, caller: int) -> HeldThreads:
    if target.threads == 1:
        waits = ThreadWaits([caller])
        held = HeldThreads(lambda: True, waits)
    else:
        waits = ThreadWaits([caller, *crew_threads()[: target.threads]])
        held = HeldThreads(meeting(target), waits)
    finalize(held, waits.close).atexit = False  # a thread may still look
    return held

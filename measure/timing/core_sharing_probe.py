"""Whether each thread has a core to itself just now.

A virtual machine's processors may be moved by its host, for seconds at a time, onto two threads of
one core: then whatever is bound by arithmetic takes twice as long.  No sample tells that from a
slow kernel, and no earlier run does, since a process may begin in that state.  Multiply-adds in
registers do: on a core of their own, all threads together take as long as one of them alone.

Of threads that are two of one core for good, or whose clock falls when all are busy, the same look
says that they are together, always.  There is nothing to wait for then, so a probe that has found
them together alone for long enough takes them for apart from then on, and says so.

Threads that another process keeps waiting are slow together as well, for some milliseconds.  So a
look begins when all have their processors.

What one thread does is always the same, so its time is the machine's pace: kept beside each trial,
it tells how far that moved in a run, with the clock or with what the neighbours do.
"""

import sys
import time
from collections import deque
from collections.abc import Callable
from functools import cache, partial

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, Loaded, load
from hlotune.codegen.runtime.support import machine_code
from hlotune.measure.timing.held_threads import held_threads
from hlotune.measure.timing.peaks import SMALL, compute_text, multiply_add_loop
from hlotune.measure.timing.timing import Apart, always_apart
from hlotune.measure.verification.buffers import guarded
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target

_TRIPS = 10_000
"""A loop of so many trips takes 20 or 40 us: long in comparison with starting a thread, short in
comparison with the trials that it runs beside.

Threads that share a core come apart later where looks are shorter than that.
"""
_APART = 1.25
"""Threads of one core take twice as long; of two, a twentieth longer in one look of twenty."""
_KEPT = 64
"""Looks whose times are kept: more than there are beside one trial."""
_BELIEVED = 5
"""Looks in a row that find threads apart: fewer may be noise, where they never are."""
GIVES_UP_S = 2.0
"""The probe gives up once looks that found threads together, with all of them busy, have taken so
long in all, and the threads were never apart.
"""
NEVER_APART = "never_apart"
"""Key of an answer of the process that measures: whether its probe has given up."""
ALONE_S = "alone_s"
"""Key of its answer to a trial: what the probe took beside it, on one thread."""


def apart_of(target: Target) -> Apart:
    """Whether the threads of a target have cores of their own; of a device that is no CPU, yes."""
    return Probe(target).apart if isinstance(target, CpuTarget) else always_apart


class Probe:
    """Compares all threads at once with one alone, in the same fraction of a millisecond."""

    def __init__(self, target: CpuTarget, tell: Callable[[], None] | None = None) -> None:
        """`tell` is called once, when the probe gives up; without it a line goes to stderr."""
        self._tell = tell or say_never_apart
        self._threads = target.threads
        self._held = held_threads(target)
        loop = multiply_add_loop("f32", target)

        def loaded(tasks: int) -> Loaded:
            text = compute_text(loop, _TRIPS, tasks)
            return load(Built(machine_code(text, target, "probe"), 0, (), 0, tasks))

        self._alone, self._together = (
            partial(self._run_s, loaded(tasks)) for tasks in (1, target.threads)
        )
        self._source = guarded(4096, "before")
        self._source.data[...] = SMALL
        self._sink = guarded(64 * loop.chains * target.threads, "before")
        self._host = crew_host()
        self._came_apart, self._in_a_row, self._together_s = False, 0, 0.0
        self._alone_s = deque[float](maxlen=_KEPT)

    @property
    def gave_up(self) -> bool:
        """Whether the threads of this machine are taken for apart because they never were."""
        return not self._came_apart and self._together_s > GIVES_UP_S

    def apart(self) -> bool:
        """True on one thread, and where there is nothing to wait for.  Takes 0.1 or 0.2 ms."""
        if self._threads == 1 or self.gave_up:
            return True
        start = time.perf_counter()
        self._held.begin()  # what other processes take is no doing of the host's
        found = self._look()
        self._in_a_row = self._in_a_row + 1 if found else 0
        self._came_apart |= self._in_a_row >= _BELIEVED
        if not found:
            self._together_s += time.perf_counter() - start
        if self.gave_up:
            self._tell()
        return found

    def _look(self) -> bool:
        """The first of three runs of all threads mostly tells, but may have woken some of them."""
        alone_s = min(self._alone(), self._alone())
        found = any(self._together() <= _APART * alone_s for _ in range(3))
        if found:
            self._alone_s.append(alone_s)
        return found

    def forget(self) -> None:
        """What was seen until now is no part of what `alone_s` tells."""
        self._alone_s.clear()

    def alone_s(self) -> list[float]:
        """Seconds of one thread, which always does the same, in looks since the last `forget`.

        Where none found threads apart, as none does of one thread, it runs once now.
        """
        return list(self._alone_s) or [self._alone()]

    def _run_s(self, loaded: Loaded) -> float:
        start = time.perf_counter()
        loaded.call(KERNEL, [self._source.address], [self._sink.address], 0, self._host)
        return time.perf_counter() - start


@cache
def say_never_apart() -> None:
    print(
        "tune: all threads together have been slower than one alone from the beginning, as threads "
        "that share a core are; from here on samples are taken as they come",
        file=sys.stderr,
    )

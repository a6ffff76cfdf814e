"""Whether each thread has a core to itself just now.

A virtual machine's processors may be moved by its host, for seconds at a time, onto two threads of
one core: then whatever is bound by arithmetic takes twice as long.  No sample tells that from a
slow kernel, and no earlier run does, since a process may begin in that state.  Multiply-adds in
registers do: on a core of their own, all threads together take as long as one of them alone.
"""

import time
from functools import partial

from hlotune.codegen.built import Built
from hlotune.codegen.compile import compile_object
from hlotune.codegen.dispatcher import crew_host
from hlotune.codegen.loader import KERNEL, Loaded, load
from hlotune.measure.buffers import guarded
from hlotune.measure.peaks import compute_text, multiply_add_loop
from hlotune.schedules.target import Target

_TRIPS = 10_000
"""About 20 us: long against the start of a thread, short against what it stands beside."""
_APART = 1.25
"""Threads of one core take twice as long; of two, a twentieth longer in one look of twenty."""


class Probe:
    """Compares all threads at once with one alone, in the same fraction of a millisecond."""

    def __init__(self, target: Target) -> None:
        self._threads = target.threads
        loop = multiply_add_loop("f32", target)

        def loaded(tasks: int) -> Loaded:
            text = compute_text(loop, _TRIPS, tasks)
            return load(Built(compile_object(text, target, "probe"), 0, (), 0, tasks))

        self._alone, self._together = (
            partial(self._run_s, loaded(tasks)) for tasks in (1, target.threads)
        )
        self._source = guarded(4096, "before")
        self._source.data[...] = 0x38  # 4.4e-5 as f32: no chain overflows
        self._sink = guarded(64 * loop.chains * target.threads, "before")
        self._host = crew_host()

    def apart(self) -> bool:
        """True on one thread.  Takes about 0.1 ms."""
        if self._threads == 1:
            return True
        alone_s = min(self._alone(), self._alone())
        self._together()  # wakes who sleeps
        return min(self._together(), self._together()) <= _APART * alone_s

    def _run_s(self, loaded: Loaded) -> float:
        start = time.perf_counter()
        loaded.call(KERNEL, [self._source.address], [self._sink.address], 0, self._host)
        return time.perf_counter() - start

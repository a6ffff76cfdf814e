"""Whether each thread has a core to itself just now.

A virtual machine's processors may be moved by its host, for seconds at a time, onto two threads of
one core: then whatever is bound by arithmetic takes twice as long.  No sample tells that from a
slow kernel; multiply-adds in registers on all threads at once do, since they took half as long
before.
"""

import time
from math import inf

from hlotune.codegen.built import Built
from hlotune.codegen.compile import compile_object
from hlotune.codegen.dispatcher import crew_host
from hlotune.codegen.loader import KERNEL, load
from hlotune.measure.buffers import guarded
from hlotune.measure.peaks import compute_text, multiply_add_loop
from hlotune.schedules.target import Target

_TRIPS = 2500
"""About 15 us: long against a call, short against what it stands beside."""
_APART = 1.35
"""Threads of one core take twice as long; a core's clock varies by less than a tenth."""


class Probe:
    """Compares with the fastest run that it has seen, so it gets surer with use."""

    def __init__(self, target: Target) -> None:
        self._threads = target.threads
        self._best_s = inf
        loop = multiply_add_loop("f32", target)
        text = compute_text(loop, _TRIPS, target.threads)
        self._loaded = load(Built(compile_object(text, target, "probe"), 0, (), 0, target.threads))
        self._source = guarded(4096, "before")
        self._source.data[...] = 0x38  # 4.4e-5 as f32: no chain overflows
        self._sink = guarded(64 * loop.chains * target.threads, "before")
        self._host = crew_host()

    def apart(self) -> bool:
        """True on one thread.  Takes about 50 us."""
        if self._threads == 1:
            return True
        self._run_s()  # wakes who sleeps
        seconds = min(self._run_s(), self._run_s())
        self._best_s = min(self._best_s, seconds)
        return seconds <= _APART * self._best_s

    def _run_s(self) -> float:
        start = time.perf_counter()
        self._loaded.call(KERNEL, [self._source.address], [self._sink.address], 0, self._host)
        return time.perf_counter() - start

"""Threads for the loops of kernels that XLA calls: one bound to each processor of the process.

They live as long as the process and sleep while nothing runs; `pool.ll` is what they do.
"""

import ctypes
import os
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

WORKER_BYTES = 128
"""Two cache lines, since processors fetch lines in pairs."""


class Worker(ctypes.Structure):
    """`%Worker` of pool.ll."""

    _fields_ = (
        ("mail", ctypes.c_void_p),
        ("asleep", ctypes.c_int32),
        ("processor", ctypes.c_int32),
        ("callers", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("semaphore", ctypes.c_byte * 32),
        ("keeps_until", ctypes.c_int64),
        ("line", ctypes.c_byte * 64),
    )


class Crew(ctypes.Structure):
    """`%Crew` of pool.ll, and the memory of its workers."""

    _fields_ = (("workers", ctypes.c_void_p), ("count", ctypes.c_int64))

    def __init__(self, processors: Sequence[int]) -> None:
        self.memory = (ctypes.c_byte * (WORKER_BYTES * (len(processors) + 1)))()
        start = -(-ctypes.addressof(self.memory) // WORKER_BYTES) * WORKER_BYTES
        super().__init__(start, len(processors))
        self.threads: list[int] = []
        """What the system calls them; empty before they start."""
        for i, processor in enumerate(processors):
            self.worker(i).processor = processor

    def worker(self, i: int) -> Worker:
        return Worker.from_address(self.address(i))

    def address(self, i: int) -> int:
        return int(self.workers) + WORKER_BYTES * i


def processors() -> list[int]:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def start(crew: Crew, work: int) -> None:
    """Starts a thread for each worker.

    Args:
        work: address of the function that a worker never leaves.
    """
    for i in range(crew.count):
        thread = Thread(target=_live, args=(crew, i, work), name=f"hlotune.{i}", daemon=True)
        thread.start()
        crew.threads.append(thread.native_id or 0)


def _live(crew: Crew, i: int, work: int) -> None:
    """What a thread does; it keeps the crew, whose memory it reads as long as it lives."""
    worker = crew.worker(i)
    if hasattr(os, "sched_setaffinity"):
        with suppress(OSError):  # the processor was taken away: then the thread runs anywhere
            os.sched_setaffinity(0, {worker.processor})
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)(ctypes.addressof(worker))

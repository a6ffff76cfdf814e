"""A process that keeps to some of its processors, all of its threads with it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hlotune.schedules.errors import TargetError

_THREADS = Path("/proc/self/task")


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """The first processors, as many as `threads`, for the time of the block.

    Thread pools keep their size: their threads share these processors.  Raises TargetError where
    the system does not let a process choose.
    """
    processors = _processors()
    if threads >= len(processors):
        yield
        return
    if not _THREADS.is_dir():
        raise TargetError(
            f"expected {len(processors)} threads, one for each processor, got a target of "
            f"{threads}, and a system that does not bind threads; use the target of all processors"
        )
    before = {t: os.sched_getaffinity(t) for t in _threads()}
    allowed = set(processors[:threads])
    for thread, its in before.items():
        _bind(thread, (its & allowed) or allowed)  # who is bound to one of them stays there
    try:
        yield
    finally:
        for thread in _threads():
            _bind(thread, before.get(thread, set(processors)))


def _processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _threads() -> list[int]:
    return [int(path.name) for path in _THREADS.iterdir()]


def _bind(thread: int, processors: set[int]) -> None:
    with suppress(ProcessLookupError):  # threads end whenever they like
        os.sched_setaffinity(thread, processors)

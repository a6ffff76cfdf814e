"""Which processors the threads of this process run on."""

import os
from collections.abc import Collection, Iterator
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
    if has_all(threads):
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


def has_all(threads: int) -> bool:
    """Whether so many threads have every processor that this process may use."""
    return threads >= len(_processors())


def _processors() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _threads() -> list[int]:
    return [int(path.name) for path in _THREADS.iterdir()]


def _bind(thread: int, processors: set[int]) -> None:
    with suppress(ProcessLookupError):  # threads end whenever they like
        os.sched_setaffinity(thread, processors)


@contextmanager
def parted(helpers: Collection[int]) -> Iterator[None]:
    """The calling thread on the first processor and `helpers` on the others, for the time of the
    block: afterwards they run where they may, and that is where they ran last.

    Does nothing where there is one processor, no helper, or a system that does not bind threads.
    """
    processors = _processors()
    if len(processors) < 2 or not helpers or not hasattr(os, "sched_setaffinity"):
        yield
        return
    _bind(0, {processors[0]})
    for helper in helpers:
        _bind(helper, set(processors[1:]))
    try:
        yield
    finally:
        for thread in (0, *helpers):
            _bind(thread, set(processors))


def threads_named(name: str) -> list[int]:
    """Numbers of the threads of this process that have a name; none where the system has no such
    list.
    """
    if not _THREADS.is_dir():
        return []
    return [thread for thread in _threads() if _name(thread) == name]


def _name(thread: int) -> str:
    try:
        return (_THREADS / str(thread) / "comm").read_text().rstrip("\n")
    except OSError:  # it has ended
        return ""

"""Work that Ctrl-C ends the wait for at once: XLA answers no signal while it compiles, or calls."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread, current_thread, main_thread
from typing import Any, TypeVar

T = TypeVar("T")


class _Helper(Thread):
    """A thread that does one work after the other: what is known of a thread that calls kernels
    (`held_threads.py`) is found out once."""

    def __init__(self) -> None:
        super().__init__(name="interruptible", daemon=True)
        self.waiting = SimpleQueue[Callable[[], None]]()
        self.start()

    def run(self) -> None:
        with suppress(KeyboardInterrupt):  # of work that was given up, and is over by then
            while True:
                self.waiting.get()()


_helpers: list[_Helper] = []
"""The one that has nothing to do, if any."""
_left: list[Event] = []
"""Are set when work that was given up is over."""


def interruptible(work: Callable[[], T]) -> T:
    """What some work gives or raises, done by a thread that is left alone when Ctrl-C comes.

    That thread ends as soon as it is back from what it is in, a call of a program or a compiler.
    Only the main thread gets signals, so that in any other one work is done in place.
    """
    if current_thread() is not main_thread():
        return work()
    results, errors, is_done = list[T](), list[BaseException](), Event()

    def done() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            is_done.set()

    helper = _helpers.pop() if _helpers else _Helper()
    helper.waiting.put(done)
    try:
        is_done.wait()
    except BaseException:
        _left.append(is_done)
        _interrupt(helper)
        raise
    _helpers.append(helper)
    if errors:
        raise errors[0]
    return results[0]


def is_anything_left() -> bool:
    """Whether work that was given up is not over yet: an interpreter that ends waits for it, or
    ends in the middle of it."""
    return not all(is_over.is_set() for is_over in _left)


def _interrupt(thread: Thread) -> None:
    """Has a thread raise at the next thing that it does in Python."""
    raising: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raising(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt))

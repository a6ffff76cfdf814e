"""Work that Ctrl-C ends the wait for at once: XLA answers no signal while it compiles, or calls."""

import atexit
import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread, current_thread, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

LOOK_S = 0.5
"""A wait is of pieces so long: a signal that comes in the moment before the main thread sleeps does
not wake it, and is seen when it next runs."""


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

    def give_up(self) -> None:
        """Has it raise at the next thing that it does in Python, and end."""
        raising: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raising(ctypes.c_ulong(self.ident or 0), ctypes.py_object(KeyboardInterrupt))
        self.waiting.put(_end)  # for the work has raised that itself, or was over


_helpers: list[_Helper] = []
"""The one that has nothing to do, if any."""
_left: list[_Helper] = []
"""Those whose work was given up: each ends with it."""


def interruptible(work: Callable[[], T]) -> T:
    """What some work gives or raises, done by a thread that is left alone when Ctrl-C comes.

    That thread ends as soon as it is back from what it is in, a call of a program or a compiler,
    and an interpreter that ends before waits for it: in the middle of a call XLA would abort.
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

    helper = _at_hand()
    try:
        helper.waiting.put(done)
        while not is_done.wait(LOOK_S):
            pass
    except BaseException:
        helper.give_up()
        _left.append(helper)
        atexit.register(helper.join)
        raise
    _helpers.append(helper)
    if errors:
        raise errors.pop()  # kept by nobody: its frames hold the program
    return results.pop()


def is_anything_left() -> bool:
    """Whether work that was given up is not over yet."""
    return any(helper.is_alive() for helper in _left)


def over_within(seconds: float | None) -> bool:
    """Waits for so long at most, or for good, until work that was given up is over; tells whether
    it is."""
    end_s = None if seconds is None else time.monotonic() + seconds
    for helper in _left:
        helper.join(None if end_s is None else max(0.0, end_s - time.monotonic()))
    _left[:] = [helper for helper in _left if helper.is_alive()]
    return not _left


def _at_hand() -> _Helper:
    """One that has nothing to do; a process that was forked has those of its parent no more."""
    while _helpers:
        if (helper := _helpers.pop()).is_alive():
            return helper
    return _Helper()


def _end() -> None:
    raise KeyboardInterrupt

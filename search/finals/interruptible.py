"""Work that Ctrl-C ends the wait for at once: XLA answers no signal while it compiles, or calls."""

import ctypes
from collections.abc import Callable
from threading import Event, Thread, current_thread, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

_left: list[Thread] = []
"""Threads whose work was given up."""


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

    thread = Thread(target=done, name="interruptible", daemon=True)
    thread.start()
    try:
        is_done.wait()
    except BaseException:
        _given_up(thread)
        raise
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def is_anything_left() -> bool:
    """Whether work that was given up is not back yet: an interpreter that ends waits for it, or
    ends in the middle of it."""
    return any(thread.is_alive() for thread in _left)


def _given_up(thread: Thread) -> None:
    """Has a thread raise at the next thing that it does in Python."""
    _left.append(thread)
    raising: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raising(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt))

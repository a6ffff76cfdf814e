"""One machine, several tuners: they take turns, since they would time each other's work."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


@contextmanager
def alone() -> Iterator[None]:
    """Waits until no other tuner of this user builds or measures, and keeps them waiting.

    The system releases the lock when the process ends, however it ends.  Not to be nested.  Where
    the temporary folder takes no files, there is no lock.
    """
    try:
        lock = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        _acquire(lock)
        yield
    finally:
        os.close(lock)


def lock_path() -> Path:
    return Path(tempfile.gettempdir()) / f"hlotune-{os.getuid()}.lock"


def _acquire(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say_once()
        fcntl.flock(lock, fcntl.LOCK_EX)


@cache
def _say_once() -> None:
    print("tune: another tuner is at work on this machine; taking turns with it", file=sys.stderr)

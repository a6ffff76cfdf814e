"""One machine, several tuners: they take turns, since they would time each other's work."""

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass
class Turns:
    """The turns of one run, and how long it waited for them."""

    waited_s: float = 0.0
    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        with alone(self.now) as waited_s:
            self.waited_s += waited_s
            yield

    def clock_s(self) -> float:
        """Seconds since some moment, on a clock that stood still while the run waited."""
        return self.now() - self.waited_s


_mine = threading.local()

_BUSY = "another tuner is at work on this machine; taking turns with it"
_NO_LOCK = (
    "expected /tmp to take a lock file, got an error; if other tuners are at work on this machine, "
    "times are wrong: run one at a time, or make /tmp writable"
)


@contextmanager
def alone(clock_s: Callable[[], float] = time.monotonic) -> Iterator[float]:
    """Waits until no other tuner of this user builds or measures, and keeps them waiting.

    Gives the seconds that it waited, by `clock_s`.
    The system releases the lock when the process ends, however it ends.  Where no folder takes its
    file, nobody waits, and that is said.

    Raises RuntimeError inside of itself: it would wait for its own end.
    """
    if getattr(_mine, "held", False):
        raise RuntimeError("expected no turn inside of another, got one; let go of the outer first")
    _mine.held = True
    try:
        with _locked(clock_s) as waited_s:
            yield waited_s
    finally:
        _mine.held = False


@contextmanager
def _locked(clock_s: Callable[[], float]) -> Iterator[float]:
    lock = _opened()
    if lock is None:
        _say_once(_NO_LOCK)
        yield 0.0
        return
    try:
        yield _acquire(lock, clock_s)
    finally:
        os.close(lock)


def lock_paths() -> tuple[Path, ...]:
    """The first that can be opened is the lock.

    The environment has no say: tuners would wait for those alone that were begun in the same one.
    """
    user = os.getuid()
    return Path(f"/run/user/{user}/hlotune.lock"), Path(f"/tmp/hlotune-{user}.lock")


def _opened() -> int | None:
    for path in lock_paths():
        with suppress(OSError):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return None


def _acquire(lock: int, clock_s: Callable[[], float]) -> float:
    """The seconds that it took: none where nobody had the lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say_once(_BUSY)
        start_s = clock_s()
        fcntl.flock(lock, fcntl.LOCK_EX)
        return clock_s() - start_s
    return 0.0


@cache
def _say_once(words: str) -> None:
    print(f"tune: {words}", file=sys.stderr)

"""One machine, several tuners: they take turns, since they would time each other's work.

What is measured on a device that is not the CPU holds the lock of that device alone, and shares
that of the machine with others that do: several devices are measured at the same time, and none
while a tuner has the CPU.
"""

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass
class Turns:
    """The turns of one run, and how long it waited for them."""

    waited_s: float = 0.0
    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    device: str = ""
    """The device that the turns are of, as in `alone`; empty for the whole machine."""
    run: "Turns | None" = None
    """The turns of the run, where these are of one of its devices: a wait counts there too."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        with alone(self.now, self.device) as waited_s:
            self.waited(waited_s)
            yield

    def waited(self, seconds: float) -> None:
        self.waited_s += seconds
        if self.run is not None:
            self.run.waited(seconds)

    def clock_s(self) -> float:
        """Seconds since some moment, on a clock that stood still while the run waited."""
        return self.now() - self.waited_s


_mine = threading.local()

_BUSY = "another tuner is at work on this machine; taking turns with it"
_BUSY_DEVICE = "another tuner is at work on {device}; taking turns with it"
_NO_LOCK = (
    "expected /tmp to take a lock file, got an error; if other tuners are at work on this machine, "
    "times are wrong: run one at a time, or make /tmp writable"
)


@contextmanager
def alone(clock_s: Callable[[], float] = time.monotonic, device: str = "") -> Iterator[float]:
    """Waits until no other tuner of this user builds or measures, and keeps them waiting.

    With a `device`, a name such as `cuda0`, tuners that measure on other devices do not wait.

    Gives the seconds that it waited, by `clock_s`.
    The system releases the lock when the process ends, however it ends.  Where no folder takes its
    file, nobody waits, and that is said.

    Raises RuntimeError inside of itself: it would wait for its own end.
    """
    if getattr(_mine, "held", False):
        raise RuntimeError("expected no turn inside of another, got one; let go of the outer first")
    _mine.held = True
    try:
        with _locked(clock_s, device) as waited_s:
            yield waited_s
    finally:
        _mine.held = False


@contextmanager
def _locked(clock_s: Callable[[], float], device: str) -> Iterator[float]:
    how = fcntl.LOCK_SH if device else fcntl.LOCK_EX
    waits = [("", how, _BUSY)]
    if device:
        waits.append((device, fcntl.LOCK_EX, _BUSY_DEVICE.format(device=device)))
    waited_s = 0.0
    with ExitStack() as held:
        for name, kind, words in waits:
            lock = _opened(name)
            if lock is None:
                _say_once(_NO_LOCK)
                continue
            held.callback(os.close, lock)
            waited_s += _acquire(lock, kind, words, clock_s)
        yield waited_s


def lock_paths() -> tuple[Path, ...]:
    """The first that can be opened is the lock.

    The environment has no say: tuners would wait for those alone that were begun in the same one.
    """
    user = os.getuid()
    return Path(f"/run/user/{user}/hlotune.lock"), Path(f"/tmp/hlotune-{user}.lock")


def _opened(device: str) -> int | None:
    for path in lock_paths():
        own = path.with_name(f"{path.stem}-{device}{path.suffix}") if device else path
        with suppress(OSError):
            return os.open(own, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    return None


def _acquire(lock: int, kind: int, words: str, clock_s: Callable[[], float]) -> float:
    """The seconds that it took: none where nobody had the lock.  `words` say who has it."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        _say_once(words)
        start_s = clock_s()
        fcntl.flock(lock, kind)
        return clock_s() - start_s
    return 0.0


@cache
def _say_once(words: str) -> None:
    print(f"tune: {words}", file=sys.stderr)

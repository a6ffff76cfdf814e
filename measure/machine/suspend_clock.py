"""Whether this process is running, by looking again and again: a clock without its absences.

Ctrl-Z, a frozen group of processes and a host that pauses all stop a process without a word, and
no clock of the system stands still with it.  So a thread looks at the time at each beat.  A beat
that comes late says that the process was away, unless it worked all the while: then a library let
no other thread run.

`suspend_timeout.py` is the other rule for the same: it forgives a wait for a worker whatever comes
late, for a worker that is given too long costs nothing.  Here an absence is taken off a budget, and
so it must be clear that it was one.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

BEAT_S = 0.5
LATE_S = 1.0
"""A beat that is no more than this late is no absence: a busy machine makes such delays."""


@dataclass
class Pulse:
    """Adds up how long the process was away, from the times at which `look` was called.

    It does so only while it is `beating`: a process that does not look seems to have been away.

    Args:
        now: seconds since some moment.
        worked: processor seconds of the process, all threads.
    """

    now: Callable[[], float] = time.monotonic
    worked: Callable[[], float] = time.process_time
    away_s: float = 0.0
    _seen: tuple[float, float] = (0.0, 0.0)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    start_s: float = 0.0
    """What `clock_s` said when it was made."""

    def __post_init__(self) -> None:
        self._seen = self.now(), self.worked()
        self.start_s = self._seen[0]

    def look(self) -> None:
        """Is to be called at least every `BEAT_S`; sooner does no harm."""
        with self._lock:
            before, self._seen = self._seen, (self.now(), self.worked())
            passed_s, worked_s = (b - a for a, b in zip(before, self._seen, strict=True))
            self.away_s += absence_s(passed_s, worked_s)

    def clock_s(self) -> float:
        """Seconds since some moment, without those that the process was away."""
        self.look()
        return self.now() - self.away_s


def absence_s(passed_s: float, worked_s: float) -> float:
    """How long the process was away between two looks.

    It may have worked for a part of it, before or after; threads that worked side by side count
    once each, and then less is called an absence than was.
    """
    gap_s = passed_s - max(BEAT_S, worked_s)
    return gap_s if gap_s > LATE_S else 0.0


@contextmanager
def beating(pulse: Pulse | None = None) -> Iterator[Pulse]:
    """A pulse that a thread of its own looks at each beat; the one given beats already."""
    if pulse is not None:
        yield pulse
        return
    pulse, stop = Pulse(), threading.Event()

    def beat() -> None:
        while not stop.wait(BEAT_S):
            pulse.look()

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield pulse
    finally:
        stop.set()
        thread.join()

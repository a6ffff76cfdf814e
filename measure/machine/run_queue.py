"""Time that threads of this process lost waiting for a processor while another one was idle.

Linux lets a thread that wakes run where it ran last, or where the thread that wakes it runs.
Where all processors were busy a moment ago it looks for no idle one, and it is some milliseconds
before it moves a thread that waits.  A program of two threads that share a processor takes twice
as long.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class Look:
    """What all threads of a process have used by some moment, in seconds."""

    at_s: float
    """The moment, on the clock of `time.perf_counter`."""
    ran_s: float
    """On processors."""
    waited_s: float
    """Seconds in line for a processor, ready to run."""


def lost_s(before: Look, after: Look, processors: int) -> float:
    """Seconds that threads waited for a processor, as far as processors were free meanwhile.

    What another process has run on in the meantime counts as free: it is lost all the same.
    """
    free_s = processors * (after.at_s - before.at_s) - (after.ran_s - before.ran_s)
    return max(0.0, min(free_s, after.waited_s - before.waited_s))


class RunQueue:
    """Tells what the threads of this process lost since `begin`."""

    def __init__(self, processors: int, tasks: Path = TASKS) -> None:
        self._processors, self._tasks = processors, tasks
        self._accounts: dict[str, int] = {}
        """By thread: its account, an open file.  To open one takes ten times as long as to read."""
        self._before: Look | None = None

    def follow(self) -> None:
        """Opens the accounts of threads that are new, and closes those of threads that ended."""
        try:
            threads = set(os.listdir(self._tasks))
        except OSError:
            return
        for ended in self._accounts.keys() - threads:
            os.close(self._accounts.pop(ended))
        for new in threads - self._accounts.keys():
            with suppress(OSError):
                self._accounts[new] = os.open(self._tasks / new / "schedstat", os.O_RDONLY)

    def begin(self) -> None:
        """Takes some tens of microseconds for the threads that `follow` found last."""
        self._before = self._look()

    def lost_s(self) -> float:
        """Nothing where Linux keeps no such account."""
        before, after = self._before, self._look()
        return lost_s(before, after, self._processors) if before and after else 0.0

    def _look(self) -> Look | None:
        waited_ns = 0
        for account in self._accounts.values():
            with suppress(ProcessLookupError):  # the thread has ended
                waited_ns += int(os.pread(account, 80, 0).split()[1])
        if not self._accounts:
            return None
        return Look(time.perf_counter(), time.process_time(), waited_ns * 1e-9)


@cache
def run_queue(processors: int) -> RunQueue:
    """That of this process on so many processors; its files stay open until the process ends."""
    return RunQueue(processors)

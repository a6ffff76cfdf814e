"""How much of the processors other processes took, from what Linux counts under /proc.

A process counts as our own where this process began it, or one that it began.  What those took that
have ended is in the account of the process that waited for them.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hlotune.codegen.runtime.thread_pool import processors

PROC = Path("/proc")

_BUSY = (0, 1, 2, 5, 6)
"""Columns of a processor's line: user, nice, system, irq, softirq.  Idle, iowait and what the host
took are no process's time."""
_PARENT, _TIMES = 1, slice(11, 15)
"""Columns of a process's line behind its name: its parent; ticks in user code and in the system, of
itself and of its ended children."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Processor seconds since the machine started, on the processors of this process."""

    at_s: float
    """On the clock of `time.monotonic`."""
    busy_s: float
    """Seconds in which some process ran."""
    own_s: float
    """Seconds in which this process ran or what it began, on whichever processor."""


def seen(proc: Path = PROC) -> Seen | None:
    """What the system has counted by now; None where there is no such account."""
    try:
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        busy = busy_ticks((proc / "stat").read_text(encoding="utf-8"), processors())
        own = own_ticks(_processes(proc), os.getpid())
    except (OSError, ValueError, IndexError):
        return None
    return Seen(time.monotonic(), tick_s * busy, tick_s * own)


def busy_ticks(text: str, wanted: Sequence[int]) -> int:
    """Ticks of all processes on some processors, from /proc/stat."""
    names = {f"cpu{k}" for k in wanted}
    lines = (line.split() for line in text.splitlines())
    return sum(int(line[1 + k]) for line in lines if line and line[0] in names for k in _BUSY)


def own_ticks(processes: Iterable[str], root: int) -> int:
    """Ticks of a process and of all that came from it, from the lines of all processes."""
    ticks, children = dict[int, int](), dict[int, list[int]]()
    for line in processes:
        number, _, rest = line.partition(" (")
        columns = rest.rpartition(") ")[2].split()  # a name may have blanks and parentheses
        ticks[int(number)] = sum(map(int, columns[_TIMES]))
        children.setdefault(int(columns[_PARENT]), []).append(int(number))
    waiting, found = [root], 0
    while waiting:
        process = waiting.pop()
        found += ticks.get(process, 0)
        waiting += children.get(process, [])
    return found


def _processes(proc: Path) -> Iterable[str]:
    for path in proc.iterdir():
        if path.name.isdecimal():
            try:
                yield (path / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue


@dataclass
class Others:
    """The share of the processors that other processes took since this was made.

    Args:
        look: what the system has counted by now; None where it does not tell.
    """

    processors: int = field(default_factory=lambda: len(processors()))
    look: Callable[[], Seen | None] = seen
    _before: Seen | None = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.look()

    def share(self) -> float | None:
        """The share that other processes took, 0 to 1; None where the system does not tell."""
        before, now = self._before, self.look()
        if before is None or now is None or now.at_s <= before.at_s:
            return None
        theirs_s = (now.busy_s - before.busy_s) - (now.own_s - before.own_s)
        return min(1.0, max(0.0, theirs_s / ((now.at_s - before.at_s) * self.processors)))

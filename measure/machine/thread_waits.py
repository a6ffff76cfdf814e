"""How long threads of this process waited for a processor, which is other processes' time.

Linux counts for each thread how long it was ready to run and did not.  The account grows when the
thread gets its processor, so a thread that still waits does not show it yet.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

TASKS = Path("/proc/self/task")


class ThreadWaits:
    """How long some threads waited; their accounts stay open as long as this."""

    def __init__(self, threads: Iterable[int], tasks: Path = TASKS) -> None:
        """Threads that have no account never seem to wait."""
        self._accounts: list[int] = []
        for thread in threads:
            with suppress(OSError):
                account = os.open(tasks / str(thread) / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
                self._accounts.append(account)

    def look(self) -> tuple[int, ...]:
        """Nanoseconds that each has waited since it began."""
        return tuple(int(os.pread(a, 80, 0).split()[1]) for a in self._accounts)

    def longest_s(self, before: Sequence[int]) -> float:
        """Seconds that the one waited that waited longest since a look."""
        waits = (b - a for a, b in zip(before, self.look(), strict=True))
        return 1e-9 * max(waits, default=0)

    def close(self) -> None:
        while self._accounts:
            os.close(self._accounts.pop())

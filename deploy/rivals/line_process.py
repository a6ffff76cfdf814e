"""A process that answers each line of JSON by one, within a limit of time."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any


class NoAnswer(Exception):
    """A process gave no answer: it took longer than its limit, or has ended."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("no answer in time" if timed_out else "the process has ended")
        self.timed_out = timed_out


class LineProcess:
    """Our side of such a process; what it writes to its error stream goes to `errors`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
    ) -> None:
        self._rest = b""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            env=dict(environment),
        )  # fmt: skip

    @property
    def number(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to a request; raises NoAnswer."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise NoAnswer(timed_out=False) from None
        return self.read(limit_s)

    def read(self, limit_s: float) -> dict[str, Any]:
        """The next answer, which may come without a request; raises NoAnswer.

        Lines that are no JSON objects are passed over: libraries print as they are imported.
        """
        until = time.monotonic() + limit_s
        while (answer := _object(self._line(until))) is None:
            pass
        return answer

    def _line(self, until: float) -> bytes:
        """The next line, until a time by the monotonic clock."""
        assert self._process.stdout
        while b"\n" not in self._rest:
            left_s = max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self._process.stdout], [], [], left_s)
            if not ready:
                raise NoAnswer(timed_out=True)
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise NoAnswer(timed_out=False)
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The code that the process ended with."""
        return self._process.wait()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # a request that the process did not live to read is written again, and lost
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None where it is none, even if it begins as one."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

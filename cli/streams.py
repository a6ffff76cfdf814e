"""The standard streams of the command: closed ones, full ones, and those of few characters."""

import errno
import io
import os
import sys
from contextlib import suppress

from hlotune.schedules.errors import HlotuneError

FAILED = 2
CLOSED = 1
"""Exit code where nobody reads what is printed any more, as by `tune report model | head -1`."""


class OutputError(HlotuneError, OSError):
    """Standard output cannot be written."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(
            f"expected to write to standard output, got {reason}; free some space, or send it "
            "elsewhere"
        )


class Output(io.TextIOWrapper):
    """Standard output that says what is wrong with it; a reader that left is for the caller."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror) from error

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.strerror) from error


class ClosedOutput(io.StringIO):
    """Stands in place of a standard output that was closed before the command began."""

    def write(self, text: str, /) -> int:
        raise OutputError(os.strerror(errno.EBADF))


def prepare_streams() -> None:
    """Makes the streams of this process safe to print to.

    Numbers of closed streams are taken, so that no file that is opened later gets one of them.
    Characters that the encoding of standard output does not have are printed as escapes.
    """
    for number in range(3):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the system gives the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for good)
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        old = sys.stdout
        sys.stdout = Output(
            old.buffer,
            encoding=old.encoding,
            errors="backslashreplace",
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )


def finish_output(code: int) -> int:
    """Writes what is left in standard output; returns the exit code that the command has by then.

    What cannot be written is said, unless the command has said something already.
    """
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        failed = CLOSED
    except OutputError as error:
        failed = FAILED
        if not code:
            print(f"tune: {error}", file=sys.stderr)
    _forget_output()
    return code or failed


def _forget_output() -> None:
    """What could not be written is not tried again when the process ends."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.close(silent)

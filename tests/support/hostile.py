"""A reader of damaged files whose outcome is what the file says."""

import os
import signal
import time
from pathlib import Path

from benchmarks.hostile import reader
from hlotune.measure.workers.worker import serve
from hlotune.schedules.errors import DatabaseError


def made(path: Path, original: Path) -> str:
    match path.read_text():
        case "refuse":
            raise DatabaseError("expected a sound file")
        case "raise":
            raise KeyError("kernel")
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "escape":
            return "\x1b[31mred"
        case "sleep":
            time.sleep(60)
    return ""


if __name__ == "__main__":
    reader.READERS["made"] = made
    serve({"read": reader.read})

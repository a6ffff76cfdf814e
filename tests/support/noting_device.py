"""A toy device that notes when it was measured on, and takes its time for it."""

import json
import os
import sys
import time
from pathlib import Path

from hlotune.measure.trial import Measurement
from hlotune.measure.workers import worker
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.wire import from_outcome

BUSY_S = 0.1
LIMIT_S = 60.0


def command(notes: Path, together: int = 1) -> tuple[str, ...]:
    """The command of a worker that appends lines of JSON to a file.

    It measures nothing until so many devices have begun to.  It is told which variable names its
    device, as it would otherwise import JAX for that word alone.
    """
    from hlotune.measure.workers.several_devices import VISIBLE

    return (sys.executable, "-m", __name__, str(notes), str(together), VISIBLE)


def _own() -> str:
    return os.environ[sys.argv[3]]


def _meet(notes: Path, together: int) -> None:
    notes.with_name(f"{notes.name}.begun.{_own()}").touch()
    end = time.monotonic() + LIMIT_S
    while len(list(notes.parent.glob(f"{notes.name}.begun.*"))) < together:
        assert time.monotonic() < end, f"expected {together} devices within {LIMIT_S:.0f} s"
        time.sleep(0.01)


def _measure(request: Message) -> Message:
    start = time.monotonic()
    _meet(Path(sys.argv[1]), int(sys.argv[2]))
    time.sleep(BUSY_S)
    note = {"device": _own(), "start": start, "end": time.monotonic()}
    with open(sys.argv[1], "a", encoding="utf-8") as notes:
        notes.write(json.dumps(note) + "\n")
    return Message(from_outcome(Measurement(samples_s=(BUSY_S,), numerics="strict")))


if __name__ == "__main__":
    worker.serve({"measure": _measure})

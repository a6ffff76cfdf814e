"""Results as JSON lines: one file, each line appended at once, so that nothing is lost."""

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, str, str, str]


class Results:
    """Appends to a file; remembers what it and earlier files hold."""

    def __init__(self, file: Path, earlier: Path | None = None):
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.rows = [*(read(earlier) if earlier else ()), *(read(file) if file.exists() else ())]
        self._known = set[Key]()
        self._seconds: dict[Key, float] = {}
        for row in self.rows:
            self._learn(row)

    def add(self, row: Row) -> None:
        row = {**row, "at": round(time.time(), 3)}
        self.rows.append(row)
        self._learn(row)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
            out.flush()
            os.fsync(out.fileno())

    @property
    def trials(self) -> int:
        """How many different ways of computing a case were tried."""
        return len(self._known)

    def holds(self, row: Row) -> bool:
        """Whether this case was measured this way on this device, with or without success."""
        return key(row) in self._known

    def seconds(self, row: Row) -> float | None:
        """What this case took this way on this device; None where it was not right."""
        return self._seconds.get(key(row))

    def _learn(self, row: Row) -> None:
        if row["what"] == "time":
            self._known.add(key(row))
            if row.get("right"):
                self._seconds.setdefault(key(row), float(row["seconds"]))


def key(row: Row) -> Key:
    """What a row is about, without its outcome."""
    config = json.dumps([row.get("sketch"), row.get("knobs")], sort_keys=True)
    return row["device"], row["case"], row["how"], config


def read(file: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines, compressed or not; a last line that was cut off is none."""
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)

"""Mutated and forged files of every format, read in processes that may die of it."""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from benchmarks.hostile.forged import Forged
from benchmarks.hostile.mutations import mutated
from benchmarks.hostile.originals import FORMATS, Format
from hlotune.measure.trial import Failure
from hlotune.measure.workers.channel import Channel, Message

Outcome = Literal["read", "refused", "fault", "crash", "hang"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""`fault` is a traceback, a wrong result, too much memory, or a line that no terminal can show."""
READER = (sys.executable, "-m", "benchmarks.hostile.reader")
PROCESSES = 2
LIMIT_S = 60.0
"""A reader that has not answered by then hangs; a program file may take 8 s of a processor."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The outcome of one file."""

    number: int
    outcome: Outcome
    words: str
    """The one line of a refusal, or what reached the user instead."""
    peak_bytes: int = 0
    """The most memory of the process so far; 0 where it is not known."""

    @property
    def is_sound(self) -> bool:
        return self.outcome in ("read", "refused")


@dataclass(frozen=True, slots=True)
class FileReading:
    """The outcome of a forged file."""

    file: str
    """The name of its format."""
    name: str
    reading: Reading
    seconds: float


@dataclass
class Reader:
    """A process that reads files one after the other, started anew where it has died."""

    folder: Path
    """Where files are put to be read."""
    channel: Channel = field(default_factory=lambda: Channel(READER))

    def read(self, kind: Format, original: Path, data: bytes, number: int) -> Reading:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / kind.file
        for left in self.folder.iterdir():
            left.unlink()
        path.write_bytes(data)
        request = {"do": "read", "reader": kind.reader, "path": str(path)}
        answer = self.channel.request(
            Message({**request, "original": str(original)}), timeout_s=LIMIT_S
        )
        if isinstance(answer, Failure):
            return Reading(number, *_failed(answer))
        return Reading(number, *_answered(answer), answer.header["peak_bytes"])

    def close(self) -> None:
        self.channel.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _failed(answer: Failure) -> tuple[Outcome, str]:
    """A reader that the system killed for its memory is a crash too."""
    return ("hang" if answer.kind == "timeout" else "crash"), answer.message


def _answered(answer: Message) -> tuple[Outcome, str]:
    if "fault" in answer.header:
        return "fault", answer.header["fault"]
    if "refused" in answer.header:
        return "refused", answer.header["refused"]
    return "read", ""


def mutation(kind: Format, original: bytes, seed: int, number: int) -> bytes:
    return mutated(original, kind.edits, (seed, list(FORMATS).index(kind.file), number))


def read_mutations(
    kind: Format, originals: Path, numbers: Sequence[int], seed: int, folder: Path
) -> list[Reading]:
    """Reads the mutations of a format by their numbers, in several processes.

    Files whose outcome is no sound one are kept in `folder`.
    """
    original = originals / kind.file
    content = original.read_bytes()
    parts = [numbers[n::PROCESSES] for n in range(min(PROCESSES, len(numbers)))]

    def read_part(place: int) -> list[Reading]:
        found = []
        with closing(Reader(folder / f"reader{place}")) as reader:
            for number in parts[place]:
                data = mutation(kind, content, seed, number)
                found.append(reading := reader.read(kind, original, data, number))
                if not reading.is_sound:
                    (folder / f"{seed}.{number}.{kind.file}").write_bytes(data)
        return found

    with ThreadPoolExecutor(len(parts)) as pool:
        return [r for part in pool.map(read_part, range(len(parts))) for r in part]


def read_forged(file: Forged, originals: Path, folder: Path) -> FileReading:
    """Reads one forged file in a process of its own."""
    original = originals / file.file
    data = file.make(original.read_bytes())
    with closing(Reader(folder / "reader")) as reader:
        reader.channel.settle()
        start = time.monotonic()
        reading = reader.read(file.kind, original, data, 0)
    return FileReading(file.kind.name, file.name, reading, time.monotonic() - start)


def counted(readings: Sequence[Reading]) -> dict[Outcome, int]:
    counts = Counter(r.outcome for r in readings)
    return {outcome: counts[outcome] for outcome in OUTCOMES}

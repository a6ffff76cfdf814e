"""Runs of `tune run`, and their worker processes, killed at random times: no record may be lost."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.maintenance import check

TUNE = (sys.executable, "-m", "hlotune")
PROGRAM = "layers.mlir"
LAYERS = """func.func @main(%x: tensor<64x96xf32>, %v: tensor<96x128xf32>, %w: tensor<128x48xf32>)
    -> tensor<64x48xf32> {
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
    : (tensor<64x96xf32>, tensor<96x128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.tanh %0 : tensor<64x128xf32>
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0]
    : (tensor<64x128xf32>, tensor<128x48xf32>) -> tensor<64x48xf32>
  return %2 : tensor<64x48xf32>
}
"""
TRIALS = 100
"""The trials that each run is asked for."""
LONGEST_S = 240.0
"""A run that has not ended by then hangs, or has not begun its search."""
KILLS_A_RUN = 5
"""Kills of workers; the run must come to its end all the same."""
EARLY = 0.2
"""The share of tuners that are killed while they load the program."""
BEGUN = re.compile(r"^\[1/\d+\] ", re.MULTILINE)
"""Says a run of its first kernel, when the default is timed."""
TOLD = re.compile(r"^(\d+) trials?, ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Killing:
    """One kill and what came of it."""

    victim: str
    """`tuner`, the name of the worker's module and role, or `nobody` for a run that was left."""
    after_s: float
    """Since the start of the run."""
    records: int
    """Trials that the run had told or the database had shown just before."""
    lost: int = 0
    """How many of these are gone or changed."""
    problem: str = ""
    """What else went wrong, in words."""

    @property
    def is_sound(self) -> bool:
        return not self.lost and not self.problem

    @property
    def words(self) -> str:
        ended = "run to its end" if self.victim == "nobody" else f"{self.victim} killed"
        wrong = f", {self.problem}" if self.problem else ""
        return f"{ended} after {self.after_s:.1f} s: {self.records} trials, {self.lost} lost{wrong}"


@dataclass
class Run:
    """A `tune run` at work, and the trials that its database was seen to have."""

    folder: Path
    database: Path
    process: "subprocess.Popen[str]"
    start_s: float
    trials_before: int
    seen: dict[str, str]
    """Content by id."""

    @classmethod
    def begun(cls, folder: Path, database: Path) -> "Run":
        said = (folder / "said").open("w")
        words = ("run", str(folder / PROGRAM), "--trials", str(TRIALS), "--database", str(database))
        with said:
            process = subprocess.Popen(
                [*TUNE, *words], stdout=subprocess.DEVNULL, stderr=said, text=True
            )
        known = recorded(database)
        return cls(folder, database, process, time.monotonic(), len(known), known)

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text(errors="replace")

    @property
    def told(self) -> int:
        """Trials that the run has said it has recorded."""
        found: list[str] = TOLD.findall(self.said)
        return int(found[-1]) if found else 0

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.start_s

    def watch(self, going_on: Callable[[], bool]) -> None:
        while going_on() and self.process.poll() is None:
            self.seen |= recorded(self.database)
            time.sleep(0.05)

    def watch_until_begun(self) -> None:
        """Until its search has begun, which may wait for other tuners of this machine."""
        self.watch(lambda: not BEGUN.search(self.said) and self.age_s < LONGEST_S)

    def watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.watch(lambda: time.monotonic() < until)

    def judged(self, killing: Killing) -> Killing:
        """The killing with the records that are lost, and what is wrong with the database."""
        if not self.seen and not self.told and not self.database.exists():
            return killing
        try:
            with Database(self.database) as opened:
                problems = check(opened).problems
        except DatabaseError as error:
            return replace(killing, lost=killing.records, problem=str(error))
        after = recorded(self.database)
        changed = sum(after.get(key) != content for key, content in self.seen.items())
        missing = max(0, self.trials_before + self.told - len(after))
        problem = killing.problem or (problems[0] if problems else "")
        return replace(killing, lost=max(changed, missing), problem=problem)

    def killing(self, victim: str) -> Killing:
        records = max(len(self.seen), self.trials_before + self.told)
        return Killing(victim, self.age_s, records)

    def to_its_end(self, victim: str) -> Killing:
        """Waits for it; it must end without an error."""
        try:
            code = self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            problem = f"hang: the run did not end within {LONGEST_S:g} s"
        else:
            last = self.said.strip().splitlines()[-1:]
            problem = f"the run ended with {code}: {' '.join(last)[:300]}" if code else ""
        return self.judged(replace(self.killing(victim), problem=problem))


def kill_tuners(folder: Path, count: int, seed: int, tell: Callable[[Killing], None]) -> None:
    """Kills tuners one after the other that record in one database; another goes on to its end."""
    moments, database = random.Random(seed), folder / "tuners.db"
    for _ in range(count):
        tell(_killed_tuner(Run.begun(folder, database), moments))
    if count:
        tell(Run.begun(folder, database).to_its_end("nobody"))


def _killed_tuner(run: Run, moments: random.Random) -> Killing:
    if moments.random() < EARLY:
        run.watch_for(moments.uniform(0.1, 4.0))
    else:
        run.watch_until_begun()
        run.watch_for(moments.uniform(0.0, 8.0))
    children = [number for number, _ in workers(run.process.pid)]
    ended = run.process.poll() is not None
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    killing = run.killing("nobody" if ended else "tuner")
    return run.judged(replace(killing, problem=_left_over(children)))


def kill_workers(folder: Path, count: int, seed: int, tell: Callable[[Killing], None]) -> None:
    """Kills workers, several in each run; the run must end as ever."""
    moments, database, done = random.Random(seed), folder / "workers.db", 0
    while done < count:
        found = _killed_workers(
            Run.begun(folder, database), min(KILLS_A_RUN, count - done), moments
        )
        for killing in found:
            tell(killing)
        done += max(1, sum(k.victim != "nobody" for k in found))


def _killed_workers(run: Run, count: int, moments: random.Random) -> list[Killing]:
    """Kills of one run, and its end as the last."""
    found: list[Killing] = []
    run.watch_until_begun()
    while len(found) < count:
        run.watch_for(moments.uniform(0.2, 2.0))
        if run.process.poll() is not None:
            break
        if alive := workers(run.process.pid):
            number, name = moments.choice(alive)
            _kill(number)
            found.append(run.killing(name))
    return [*found, run.to_its_end("nobody")]


def recorded(database: Path) -> dict[str, str]:
    """Trials in a database by id; none where another process is just making it."""
    if not database.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)) as opened:
            rows = opened.execute("select id, schedule, samples_s, failure_kind from trials")
            return {row[0]: repr(row[1:]) for row in rows}
    except sqlite3.OperationalError:
        return {}


def _left_over(numbers: list[int]) -> str:
    """Workers end with the tuner."""
    until = time.monotonic() + 15.0
    while alive := [n for n in numbers if _is_alive(n)]:
        if time.monotonic() > until:
            return f"{len(alive)} workers outlived the tuner"
        time.sleep(0.05)
    return ""


def _is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _kill(number: int) -> None:
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended by itself
        return


def workers(parent: int) -> list[tuple[int, str]]:
    """The processes that a tuner has started: number, and module with role."""
    return sorted(_children(parent))


def _children(parent: int) -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if int(state[1]) == parent and state[0] != "Z" and "-m" in words:
            module, *roles = (w for w in words[words.index("-m") + 1 :] if w)
            yield int(folder.name), " ".join([module.rpartition(".")[2], *roles])

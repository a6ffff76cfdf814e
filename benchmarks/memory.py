"""Where a tuning run's time and memory go: the sum of all its processes, phase by phase.

    python -m benchmarks.memory examples/vgg19.py:model --budget 60s

Memory is the proportional set size (PSS) of the run's processes: a page that several have counts
once in all.  It is sampled every quarter of a second from outside, so that nothing is hidden by a
process that is busy.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

from benchmarks.command import RECORDED, command
from benchmarks.results import Table, conditions, publish
from hlotune.measure.machine.targets import host_target
from hlotune.search.budget.limits import seconds

INTERVAL_S = 0.25
PHASES = ("loading", "preparing", "batches", "closing")
"""Until the program is read; until the first batch; until finals begin; until the end."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_s: float
    """Since the command began."""
    bytes: tuple[int, ...]
    """The bytes of each process, the command's first."""

    @property
    def all_bytes(self) -> int:
        return sum(self.bytes)


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    begun_s: float
    ended_s: float
    peak: Sample | None

    def to_json(self) -> dict[str, Any]:
        mb = [n >> 20 for n in self.peak.bytes] if self.peak else []
        return {
            "phase": self.name,
            "seconds": self.ended_s - self.begun_s,
            "peak_mb": sum(mb),
            "processes_mb": mb,
            "peak_at_s": self.peak.at_s if self.peak else None,
        }


def main() -> None:
    options = parsed()
    if options.child:
        run_here(options)
        return
    before = conditions(host_target(), None)
    events, samples, ended_s = watched(
        [sys.executable, "-m", "benchmarks.memory", "--child", *sys.argv[1:]]
    )
    phases = phases_of(events, samples, ended_s)
    publish(table(options.program, phases, events), before, [p.to_json() for p in phases])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--budget", type=seconds, default=60.0)
    parser.add_argument("--database", type=Path, default=Path("build/memory.db"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def run_here(options: argparse.Namespace) -> None:
    """Tunes, and prints a line of JSON for each event."""
    from hlotune.hlo.frontends.program import load
    from hlotune.search.tune import tune

    def tell(kind: str, **facts: object) -> None:
        print(json.dumps({"event": kind, "at": time.monotonic(), **facts}), flush=True)

    def progress(event: Any) -> None:
        names = ("trials", "failures", "elapsed_s", "speedup", "label", "won", "wall_s", "reason")
        facts = {n: getattr(event, n) for n in names if hasattr(event, n)}
        tell(type(event).__name__, **facts)

    options.database.parent.mkdir(parents=True, exist_ok=True)
    options.database.unlink(missing_ok=True)
    program = load(options.program)
    tell("Loaded")
    result = tune(program, budget_s=options.budget, database=options.database, progress=progress)
    tell("Ended", kernels=len(result.kernels), won=len(result.won), speedup=result.speedup)


def watched(line: Sequence[str]) -> tuple[list[dict[str, Any]], list[Sample], float]:
    """Events of a command, `at` in seconds since it began, samples of its memory, and its end."""
    start_s, samples, done = time.monotonic(), list[Sample](), Flag()
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)

    def sample() -> None:
        while not done.wait(INTERVAL_S):
            sizes = tuple(map(pss_bytes, family(process.pid)))
            samples.append(Sample(time.monotonic() - start_s, sizes))

    sampler = Thread(target=sample)
    sampler.start()
    assert process.stdout is not None
    events = [json.loads(text) for text in process.stdout if text.startswith("{")]
    process.wait()
    done.set()
    sampler.join()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, line)
    return (
        [{**e, "at": e["at"] - start_s} for e in events],
        samples,
        time.monotonic() - start_s,
    )


def family(process: int) -> list[int]:
    """A process, its children, and theirs."""
    found = [process]
    for parent in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def pss_bytes(process: int) -> int:
    """The proportional set size of a process; 0 where it has ended."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(x for x in lines if x.startswith("Pss:")).split()[1])
    return 0


def phases_of(
    events: Sequence[dict[str, Any]], samples: Sequence[Sample], ended_s: float
) -> list[Phase]:
    """What lies between the events that end a phase; one whose event never came is left out."""
    ends = [first(events, "Loaded"), first(events, "KernelStarted"), first(events, "Finalising")]
    phases, begun_s = list[Phase](), 0.0
    for name, end_s in zip(PHASES, [*ends, ended_s], strict=True):
        if end_s is not None:
            within = [s for s in samples if begun_s <= s.at_s < end_s]
            peak = max(within, key=lambda s: s.all_bytes, default=None)
            phases.append(Phase(name, begun_s, end_s, peak))
            begun_s = end_s
    return phases


def first(events: Sequence[dict[str, Any]], kind: str) -> float | None:
    return next((e["at"] for e in events if e["event"] == kind), None)


def table(program: str, phases: Sequence[Phase], events: Sequence[dict[str, Any]]) -> Table:
    rows = [
        [
            phase.name,
            f"{phase.ended_s - phase.begun_s:.1f}",
            f"{phase.peak.all_bytes >> 20}" if phase.peak else "-",
            ", ".join(str(n >> 20) for n in phase.peak.bytes) if phase.peak else "-",
        ]
        for phase in phases
    ]
    batches = [e for e in events if e["event"] == "Batch"]
    ended = next((e for e in events if e["event"] == "Ended"), {})
    measured = f"{batches[0]['at']:.1f} s" if batches else "never"
    trials = batches[-1]["trials"] if batches else 0
    begun = len({e["label"] for e in events if e["event"] == "KernelStarted"})
    speedup = ended.get("speedup")
    return Table(
        name="memory",
        columns=["phase", ">seconds", ">peak MB", "of each process"],
        rows=rows,
        notes=[
            f"{program}: first batch measured after {measured}; {trials} trials; {begun} of "
            f"{ended.get('kernels')} kernels begun, {ended.get('won')} won; the whole program "
            + (f"{speedup:.2f} times as fast as the default" if speedup else "was not compared"),
        ],
    )


if __name__ == "__main__":
    command(main, RECORDED)

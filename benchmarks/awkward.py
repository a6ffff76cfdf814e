"""Kernels of awkward extents: annealing with 128 trials against random search with 1,024.

    python -m benchmarks.awkward --seeds 3

Neither has the heuristic or the default among its candidates.  Annealing starts on the shipped
trees, and its last tenth is coordinate descent, as in a run.  One random search of a case is held
against all seeds.  At the end the champions of all are timed in turns (`settled.py`): one trial's
time is some percent off, and the best of a thousand are the luckiest.

What is in the database is not measured again, as long as the shipped model is the same.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.awkward_cases import CASES, source
from benchmarks.command import RECORDED, command
from benchmarks.learned import Race
from benchmarks.learning import Track
from benchmarks.results import Table, conditions, geometric_mean, milliseconds, publish
from benchmarks.settled import Referee, champions, chosen_s, last_crowd, settled
from hlotune.measure.machine.targets import host_target
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.tuning_logs.database import Database

GUIDED, BLIND = "run", "random"
TRIALS = {GUIDED: 128, BLIND: 1024}
WITHIN = 0.98
"""Share of random's speed that no longer counts as behind: so far apart are two rounds."""


@dataclass(frozen=True, slots=True)
class Line:
    case: str
    guided_s: tuple[float, ...]
    """The time of what annealing found, by seed."""
    blind_s: float

    @property
    def ratios(self) -> tuple[float, ...]:
        """Random's time over annealing's: above 1 annealing is ahead."""
        return tuple(self.blind_s / t for t in self.guided_s)


def main() -> None:
    options = parsed()
    target, deadline_s = host_target(), time.monotonic() + options.seconds
    with ExitStack() as stack:
        database = stack.enter_context(Database(options.database))
        builder = stack.enter_context(ProcessBuilder(target))
        runner = stack.enter_context(ProcessRunner(target))
        properties = runner.properties()
        before = conditions(target, properties)
        track = Track(database, builder, runner, target, properties, source)
        lines = []
        for case in options.cases:
            for race in races(case, options.seeds):
                track.advance(race, TRIALS[race.contestant], deadline_s)
            if time.monotonic() < deadline_s:
                lines.append(met(track, case, options.seeds, runner))
        publish(table(lines), before, [{"case": x.case, "guided_s": x.guided_s,
                                        "blind_s": x.blind_s} for x in lines])  # fmt: skip


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", default=[*CASES])
    parser.add_argument("--seeds", type=int, default=3, help="of annealing")
    parser.add_argument("--seconds", type=float, default=inf, help="after which no batch starts")
    parser.add_argument("--database", type=Path, default=Path("build/awkward.db"))
    options = parser.parse_args()
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def races(case: str, seeds: int) -> list[Race]:
    return [Race(case, BLIND, 0), *(Race(case, GUIDED, seed) for seed in range(seeds))]


def met(track: Track, case: str, seeds: int, referee: Referee) -> Line:
    """What each search would hand over, by times taken in turns."""
    crowds = {race: last_crowd(track.trials(race)[: TRIALS[race.contestant]])
              for race in races(case, seeds)}  # fmt: skip
    schedules = list(dict.fromkeys(s for crowd in crowds.values() for s in crowd))
    times = settled(track.kernel(case), schedules, track.builder, referee)
    blind_s, *guided_s = (chosen_s(champions(c, times), times) for c in crowds.values())
    return Line(case, tuple(guided_s), blind_s)


def table(lines: Sequence[Line]) -> Table:
    ahead = [sum(geometric_mean(x.ratios) >= share for x in lines) for share in (1, WITHIN)]
    return Table(
        name="awkward",
        columns=["case", ">seeds", ">annealing ms", ">worst ms", ">random ms", ">ratio"],
        rows=[cells(x) for x in lines],
        notes=[
            f"best of {TRIALS[GUIDED]} trials of annealing, the median and the worst of the seeds, "
            f"and of {TRIALS[BLIND]} of random search, timed in turns; no heuristic, no default",
            "ratio: random's time over annealing's, geometric mean of the seeds",
            f"annealing at least as good: {ahead[0]} of {len(lines)}; within "
            f"{1 - WITHIN:.0%}: {ahead[1]}",
        ],
    )


def cells(x: Line) -> list[str]:
    return [
        x.case,
        str(len(x.guided_s)),
        milliseconds(median(x.guided_s)),
        milliseconds(max(x.guided_s)),
        milliseconds(x.blind_s),
        f"{geometric_mean(x.ratios):.3f}",
    ]


if __name__ == "__main__":
    command(main, RECORDED)

"""How long searches take: hlotune to the speed at which TVM's MetaSchedule ends, and MetaSchedule.

    python -m benchmarks.peers.searches --database build/peers.db

It measures nothing: TVM's seconds are those of its search (`--tvm-trials`), its speed is that of
the turns against ours (`python -m benchmarks.peers`), and ours are the times of the records.  A
trial of ours counts by the clock `kernel`, in the cache mode that it was tuned for (`--cache`);
TVM by the fastest turn of its blocking call.  That and what ours begins with favour ours, and stand
under the table.  A run of several kernels counts the seconds of all, so let a case be tuned alone.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.command import command
from benchmarks.peers.contestants import FOLDER
from benchmarks.peers.passes import Pass, kept
from benchmarks.peers.records import record
from benchmarks.peers.rounds import Turns
from benchmarks.results import Table, milliseconds, publish
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import CacheMode
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.tuning_logs.database import UNDER, Database, conditions

SEARCHES = FOLDER / "tvm-records"
LABEL = "tvm arguments"


@dataclass(frozen=True, slots=True)
class Reached:
    """The first trial that is at least as fast as asked for."""

    seconds: float
    """Since the run of the tuner began, its start and all that it built and verified included."""
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    case: str
    tvm_trials: int
    tvm_search_s: float
    tvm_call_s: float
    ours: Reached | None
    """None where no trial of ours came that far."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", type=Path, default=Path("build/peers.db"))
    parser.add_argument("--cache", choices=("model", "warm"), default="warm")
    options = parser.parse_args()
    target = host_target()
    passes = {case: kept(case) for case in CASES if (SEARCHES / case / "search.json").exists()}
    races = [race(case, found, options.database, target, options.cache)
             for case, found in passes.items() if found]  # fmt: skip
    if not races:
        parser.error("expected passes with TVM, got none; run benchmarks.peers with --tvm-trials")
    publish(table(races), passes[races[-1].case][-1].conditions, [asdict(r) for r in races])


def race(
    case: str, passes: Sequence[Pass], database: Path, target: CpuTarget, cache: CacheMode = "model"
) -> Race:
    """Raises ValueError where TVM has no turns in these passes."""
    search = json.loads((SEARCHES / case / "search.json").read_text(encoding="utf-8"))
    turns = [t for p in passes if isinstance(t := p.outcomes.get(LABEL), Turns)]
    if not turns:
        raise ValueError(f"expected turns of TVM in the passes of {case}, got none; measure again")
    goal_s = min(min(t.call_s) for t in turns)
    return Race(
        case=case,
        tvm_trials=search["trials"],
        tvm_search_s=search["search_s"],
        tvm_call_s=goal_s,
        ours=reached(case, goal_s, database, target, cache),
    )


def reached(
    case: str, goal_s: float, database: Path, target: CpuTarget, cache: CacheMode = "model"
) -> Reached | None:
    """How fast the first run that tuned the kernel reached the goal: later ones begin with what it
    found.

    A trial counts from when its batch was recorded; those of the default do not.
    """
    key = record(case, "arguments", database, target, cache).kernel.key
    with Database(database, create=False) as opened:
        trials = opened.query(
            f"select * from trials where kernel = :kernel and {UNDER} order by recorded, number",
            {"kernel": key, **conditions(target, toolchain(), cache)},
        )
        runs = opened.query("select id, started from runs", {})
    started = {row["id"]: row["started"] for row in runs}
    first = [t for t in trials if t["run"] == trials[0]["run"]]
    ours = [t for t in first if Schedule.from_json(t["schedule"]) != DEFAULT]
    for number, trial in enumerate(ours, 1):
        if trial["time_s"] is not None and trial["time_s"] <= goal_s:
            return Reached(_seconds(started[trial["run"]], trial["recorded"]), number)
    return None


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


NOTES = (
    "weights as arguments; hlotune from its first run of the kernel in the database",
    "two clocks: hlotune's trials count by the kernel alone (clock `kernel`: a call less an empty "
    "one), TVM's is a blocking call, the fastest of its turns: what a call costs beside the kernel "
    "is in TVM's time alone, so that the speed to reach is lower than TVM's kernel has",
    "hlotune starts as its runs do: from the trained model that comes with it (where that fits), "
    "the heuristic's schedule and what its database has of other kernels; TVM from nothing. "
    "Seconds that training and other kernels took are not counted",
)
"""What no figure of this table may be read without."""


def table(races: Sequence[Race]) -> Table:
    columns = [
        "case", ">TVM trials", ">its search s", ">its ms", ">hlotune trials", ">s to that speed",
        ">ratio",
    ]  # fmt: skip
    return Table(
        name="searches",
        columns=columns,
        rows=[cells(r) for r in races],
        notes=NOTES,
    )


def cells(r: Race) -> list[str]:
    ours = r.ours
    return [
        r.case,
        str(r.tvm_trials),
        f"{r.tvm_search_s:.0f}",
        milliseconds(r.tvm_call_s),
        str(ours.trials) if ours else "never",
        f"{ours.seconds:.1f}" if ours else "-",
        f"{r.tvm_search_s / ours.seconds:.1f}" if ours else "-",
    ]


if __name__ == "__main__":
    command(main)

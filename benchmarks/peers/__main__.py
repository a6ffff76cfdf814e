"""Measures hlotune against other libraries, case by case, and prints the table of all so far.

    python -m benchmarks.peers --trials 64 --tuning-seconds 1500 --passes 0
    python -m benchmarks.peers --cases 'C*' --seconds 50

What the database has is not tuned again, and a case that has its passes is not measured again, so
that a long run may be made in pieces.  A case that cannot be tuned or measured is named, and the
others go on.  `--prepare` compiles everything and compares results, and times nothing.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from benchmarks.cases import FROZEN, selected
from benchmarks.command import RECORDED, command
from benchmarks.peers.arena import Arena, arena
from benchmarks.peers.contestants import contestants
from benchmarks.peers.passes import kept, to_json
from benchmarks.peers.process import Refusal
from benchmarks.peers.rounds import Effort, Turns
from benchmarks.peers.table import all_rows, conditions_of, table
from benchmarks.peers.trials import notes
from benchmarks.peers.tuning import tune_missing
from benchmarks.results import publish
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.targets.cpu import CpuTarget


def main() -> None:
    options = parsed()
    target = host_target()
    if options.trials:
        end = time.monotonic() + options.tuning_seconds
        tune_missing(options.cases, options.trials, options.database, target, options.cache, end)
    end = time.monotonic() + options.seconds
    found = contestants(options.database, options.cache)
    effort = replace(Effort(), rounds=options.rounds)
    for number in range(options.passes):
        with arena(target, found, effort, options.database, options.cache) as taking_part:
            if not one_pass(taking_part, options.cases, number + 1, end, prepare=options.prepare):
                print(f"{options.seconds:g} s are over; the same command goes on from here")
                break
    if not options.prepare:
        shown(options.cases, options.database, target)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--cases", nargs="+", metavar="CASE", default=["*"], help="names or patterns: C6, 'C*'")
    add("--families", nargs="+", default=(), help="of these cases, those alone")
    add("--database", type=Path, default=Path("build/peers.db"), help="records of hlotune")
    add("--cache", choices=("model", "warm"), default="warm", help="what hlotune is tuned for")
    add("--trials", type=int, default=0, help="tune what the database has not, with so many")
    add("--tuning-seconds", type=float, default=float("inf"), help="tune no more after this")
    add("--passes", type=int, default=2, help="each by fresh processes; 0 shows what there is")
    add("--rounds", type=int, default=Effort().rounds, help="turns of each form in a pass")
    add("--seconds", type=float, default=float("inf"), help="start no case after this")
    add("--tvm-trials", type=int, default=0, help="of MetaSchedule's search, where it was not made")
    add("--prepare", action="store_true", help="compile and compare results, time nothing")
    options = parser.parse_args()
    try:
        names = selected(options.cases, options.families)
    except ValueError as error:
        parser.error(str(error))
    options.cases = list(dict.fromkeys(name.removesuffix(FROZEN) for name in names))
    os.environ["PEER_TVM_TRIALS"] = str(options.tvm_trials)
    options.passes = 1 if options.prepare else options.passes
    options.database.parent.mkdir(parents=True, exist_ok=True)
    return options


def one_pass(
    taking_part: Arena, cases: Sequence[str], number: int, end: float, *, prepare: bool
) -> bool:
    """Whether it came to its end."""
    for case in cases:
        if time.monotonic() > end:
            return False
        if prepare:
            report(case, taking_part.prepare(case))
        else:
            measure(taking_part, case, number)
    return True


def measure(taking_part: Arena, case: str, number: int) -> None:
    """Unless it has so many passes.  What goes wrong with our side of a case ends that case."""
    try:
        if taking_part.lacks(case, number):
            outcomes = taking_part.measure(case).outcomes
            report(case, {k: o for k, o in outcomes.items() if not isinstance(o, Turns)})
    except HlotuneError as error:
        print(f"{case}: not measured: {error}", flush=True)


def report(case: str, refused: Mapping[str, Refusal]) -> None:
    """Prints the entries that could have had a time and have none."""
    failed = {k: r for k, r in refused.items() if r.kind not in ("missing", "unsupported")}
    print(f"{case}: {f'{len(failed)} failed' if failed else 'done'}", flush=True)
    for label, refusal in failed.items():
        print(f"  {label}: {refusal.kind}: {refusal.message}")


def shown(cases: Sequence[str], database: Path, target: CpuTarget) -> None:
    """The table of what has been measured of these cases, in this run or before."""
    passes = {case: found for case in cases if (found := kept(case))}
    if not passes:
        print("nothing measured yet")
        return
    rows = all_rows(passes, contestants(database), target)
    every = list(chain(*passes.values()))
    last = every[-1].conditions
    tuned_for = last.get("tuned_for", "model")
    told = notes(rows, database, target, tuned_for)
    made = table(rows, last["versions"], tuned_for, told)
    publish(made, conditions_of(passes), [to_json(p) for p in every])


if __name__ == "__main__":
    command(main, RECORDED)

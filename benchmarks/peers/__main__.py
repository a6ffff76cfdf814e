"""Measures hlotune against other libraries, case by case, and prints the table of all so far.

    python -m benchmarks.peers --cases 'C*' --database build/operators.db --seconds 50

A case that has its passes is not measured again, so that a long run may be made in pieces.
`--prepare` compiles everything and compares results, and times nothing.
"""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import FROZEN, forms, selected, source
from benchmarks.peers.arena import Arena, arena
from benchmarks.peers.contestants import Weights, contestants
from benchmarks.peers.passes import Pass, kept, to_json
from benchmarks.peers.process import Refusal
from benchmarks.peers.records import record
from benchmarks.peers.rounds import Effort, Turns
from benchmarks.peers.table import Peaks, rows_of, table
from benchmarks.results import publish
from hlotune.cli.progress import watching
from hlotune.hlo.program import load
from hlotune.measure.targets import host_target
from hlotune.schedules.target import Target
from hlotune.search.tune import tune


def main() -> None:
    options = parsed()
    target = host_target()
    if options.trials:
        tune_missing(options, target)
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
    add("--cache", choices=("model", "warm"), default="model", help="what hlotune was tuned for")
    add("--trials", type=int, default=0, help="tune what the database has not, with so many")
    add("--passes", type=int, default=2, help="each by fresh processes")
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
        elif taking_part.lacks(case, number):
            outcomes = taking_part.measure(case).outcomes
            report(case, {k: o for k, o in outcomes.items() if not isinstance(o, Turns)})
    return True


def report(case: str, refused: Mapping[str, Refusal]) -> None:
    """Who could have had a time and has none."""
    failed = {k: r for k, r in refused.items() if r.kind not in ("missing", "unsupported")}
    print(f"{case}: {f'{len(failed)} failed' if failed else 'done'}", flush=True)
    for label, refusal in failed.items():
        print(f"  {label}: {refusal.kind}: {refusal.message}")


def tune_missing(options: argparse.Namespace, target: Target) -> None:
    database, cache = options.database, options.cache
    for name in (form for case in options.cases for form in forms(case)):
        weights: Weights = "constants" if name.endswith(FROZEN) else "arguments"
        found = record(name.removesuffix(FROZEN), weights, database, target, cache)
        if found.status != "not tuned":
            continue
        with watching() as progress:
            result = tune(
                load(source(name)), trials=options.trials, database=database, cache=cache,
                progress=progress,
            )  # fmt: skip
        if result.interrupted:
            raise KeyboardInterrupt


def shown(cases: Sequence[str], database: Path, target: Target) -> None:
    """The table of what has been measured of these cases, in this run or before."""
    passes = {case: found for case in cases if (found := kept(case))}
    every: list[Pass] = [p for found in passes.values() for p in found]
    if not every:
        print("nothing measured yet")
        return
    peaks, taking_part = Peaks.of(every), contestants(database)
    rows = [r for found in passes.values() for r in rows_of(found, taking_part, target, peaks)]
    under = {**every[0].conditions, "peak_flop_per_s": dict(peaks.flop_per_s)}
    publish(table(rows, every[-1].conditions["versions"]), under, [to_json(p) for p in every])


if __name__ == "__main__":
    main()

"""Measures cases in parts, keeps what was found, and prints the table of all."""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import tracked
from benchmarks.command import RECORDED, command
from benchmarks.kernels import kept
from benchmarks.kernels.case import Case
from benchmarks.kernels.cases import CASES, chosen
from benchmarks.kernels.measuring import EFFORT, Measuring, contestants
from benchmarks.kernels.table import NAME, cells, measured, reasons
from benchmarks.kernels.tuning import FOLDER
from benchmarks.peers.arena import versions
from benchmarks.peers.process import Worker
from benchmarks.results import conditions, publish
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import Probe


def main() -> None:
    options = parsed()
    if not options.print:
        measure(chosen(options.cases), options)
    for table, under, lines in measured(options.results):
        publish(table, under, [str(x.case) for x in lines])
        for reason in reasons(lines):
            print(reason)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--seconds", type=float, default=20.0, help="of tuning, for each case")
    parser.add_argument("--turns", type=float, default=EFFORT.case_s, metavar="SECONDS",
                        help="of timing, for each case")  # fmt: skip
    parser.add_argument("--stop", type=float, default=1e9, metavar="SECONDS",
                        help="begin no case after so many seconds")  # fmt: skip
    parser.add_argument(
        "--missing",
        action="store_true",
        help="only cases without a line yet, or without a search where it tunes",
    )
    parser.add_argument("--print", action="store_true", help="measure nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of databases")
    parser.add_argument("--results", type=Path, default=tracked.RESULTS, metavar="FOLDER",
                        help="for results; those of a trial are better under build/")  # fmt: skip
    return parser.parse_args()


def measure(cases: Sequence[Case], options: argparse.Namespace) -> None:
    start_s, target = time.monotonic(), host_target()
    path = tracked.file_of(NAME, target.isa, options.results)
    known = kept.lines(path, CASES) if options.missing else []
    done = {x.case for x in known if x.is_done(options.seconds)}
    before = conditions(target, None)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(c, target.threads)) for c in contestants(options.folder)
        ]
        under = {**before, "versions": versions(workers, print)}
        measuring = Measuring(
            folder=options.folder, workers=workers, conditions=under,
            apart=Probe(target).apart, seconds=options.seconds,
            effort=replace(EFFORT, case_s=options.turns),
        )  # fmt: skip
        for case in cases:
            if case.name in done:
                continue
            if time.monotonic() - start_s > options.stop:
                print(f"{case.name} and what follows is left for another run")
                break
            line = measuring.line(case)
            kept.add(path, line)
            print(" | ".join(cells(line)), flush=True)


if __name__ == "__main__":
    command(main, RECORDED)

"""Measures models in parts, keeps what was found, and prints the tables of all."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks import tracked
from benchmarks.command import RECORDED, command
from benchmarks.models import kept
from benchmarks.models.examples import EXAMPLES, Example, chosen
from benchmarks.models.measuring import EFFORT, Measuring
from benchmarks.models.table import NAME, measured, reasons, said
from benchmarks.models.tuning import FOLDER
from benchmarks.results import conditions, publish
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import Probe


def main() -> None:
    options = parsed()
    if not options.print:
        measure(chosen(options.models), options)
    said_once: dict[str, None] = {}
    for table, under, lines in measured(options.results):
        publish(table, under, [asdict(x) for x in lines])
        said_once |= dict.fromkeys(reasons(lines))
    for reason in said_once:
        print(reason)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[], metavar="NAME", help="all without it")
    parser.add_argument("--seconds", type=float, default=300.0, help="of tuning, for each model")
    parser.add_argument("--options", type=float, default=60.0, metavar="SECONDS",
                        help="of searching XLA's options, for each network")  # fmt: skip
    parser.add_argument("--turns", type=float, default=EFFORT.case_s, metavar="SECONDS",
                        help="of timing, for each model")  # fmt: skip
    parser.add_argument("--stop", type=float, default=1e9, metavar="SECONDS",
                        help="begin no model after so many seconds")  # fmt: skip
    parser.add_argument("--missing", action="store_true", help="only models without a line yet")
    parser.add_argument("--print", action="store_true", help="measure nothing")
    parser.add_argument("--results", type=Path, default=tracked.RESULTS, metavar="FOLDER",
                        help="for results; those of a trial are better under build/")  # fmt: skip
    return parser.parse_args()


def measure(examples: Sequence[Example], options: argparse.Namespace) -> None:
    start_s, target = time.monotonic(), host_target()
    path = tracked.file_of(NAME, target.isa, options.results)
    done = {x.model for x in kept.lines(path, EXAMPLES)} if options.missing else set[str]()
    FOLDER.mkdir(parents=True, exist_ok=True)
    measuring = Measuring(
        conditions=conditions(target, None), threads=target.threads, apart=Probe(target).apart,
        seconds=options.seconds, options_s=options.options,
        effort=replace(EFFORT, case_s=options.turns),
    )  # fmt: skip
    for example in examples:
        if example.name in done:
            continue
        if time.monotonic() - start_s > options.stop:
            print(f"{example.name} and what follows is left for another run")
            break
        line = measuring.line(example)
        kept.add(path, line)
        print(said(line), flush=True)


if __name__ == "__main__":
    command(main, RECORDED)

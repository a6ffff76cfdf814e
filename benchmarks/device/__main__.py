"""Measures on the GPU of this machine, or prints what was measured.

python3 -m benchmarks.device                 # at most 8 minutes; results under $OUT
python3 -m benchmarks.device --earlier FILE  # goes on behind those of a file, worst cases first
python3 -m benchmarks.device --cases '*3x3*' # only those whose names match
python3 -m benchmarks.device --cases 'model_*'  # whole models alone
python3 -m benchmarks.device --table FILE    # a table, on any machine
python3 -m benchmarks.device --ranking FILE  # how well guesses of time rank what was measured
python3 -m benchmarks.device --held-out FILE # the same of guesses that learned from other cases
python3 -m benchmarks.device --learn FILE    # trains the trees that correct guesses
python3 -m benchmarks.device --tiny          # small kernels interpreted, without a GPU
"""

import argparse
import fnmatch
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.command import command
from benchmarks.device.cases import CASES, TINY, Case
from benchmarks.device.crew import Crew
from benchmarks.device.learned import held_out, lessons, trained
from benchmarks.device.ranking import ranking
from benchmarks.device.records import Results, Row, read
from benchmarks.device.run import Run
from benchmarks.device.table import table
from benchmarks.device.whole import MODELS, Model, models_table
from hlotune.costmodel.gpu_guesses import SHIPPED
from hlotune.search.learning.gpu_spaces import KEY

SECONDS = 470.0
COMPILERS = 10


KEPT = "results until then stay in device.jsonl, and --earlier goes on behind them"


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    given = (asked.table, asked.ranking, asked.held_out, asked.learn, asked.earlier)
    for file in filter(None, given):
        if not file.is_file():
            parser.error(f"expected a file of results, and {file} is none")
    if (page := _page(asked)) is not None:
        print(page)
        return 0
    out = Path(os.environ.get("OUT", "build/device"))
    results = Results(out / "device.jsonl", asked.earlier)
    crew = Crew(out, asked.compilers, interpret=asked.tiny)
    try:
        run = Run(results, crew, asked.seconds, asked.pace)
        models = [] if asked.tiny else itertools.chain(*chosen(MODELS, asked.cases))
        run.everything(chosen(TINY if asked.tiny else CASES, asked.cases), list(models))
    finally:
        crew.stop()
    print(_tables(results.rows))
    return 0


def _tables(rows: Sequence[Row]) -> str:
    """The Markdown tables of cases, and of whole models where some were measured."""
    return "\n\n".join(filter(None, (table(rows), models_table(rows))))


def _page(asked: argparse.Namespace) -> str | None:
    """The text to print about a file of results; None where kernels are to be measured."""
    pages = {"table": _tables, "ranking": ranking, "held_out": held_out, "learn": _learn}
    for name, page in pages.items():
        if (file := getattr(asked, name)) is not None:
            return page(list(read(file)))
    return None


def _learn(rows: Sequence[Row]) -> str:
    known = lessons(rows)
    trained(known).save(SHIPPED, KEY)
    return f"{SHIPPED}: trees of {len(known)} cases"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=SECONDS, help="when to stop")
    parser.add_argument("--cases", nargs="*", default=["*"], help="patterns of names, first first")
    parser.add_argument("--earlier", type=Path, help="results that are not measured again")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    parser.add_argument("--ranking", type=Path, help="print how guesses rank a file of results")
    parser.add_argument("--held-out", type=Path, help="print how trees rank cases unknown to them")
    parser.add_argument("--learn", type=Path, help="train the trees on a file of results")
    parser.add_argument("--compilers", type=int, default=COMPILERS, help="processes")
    parser.add_argument("--pace", type=float, default=1.0, help="part of each case's seconds")
    parser.add_argument("--tiny", action="store_true", help="interpret small kernels")
    return parser


Named = TypeVar("Named", Case, Model)


def chosen(cases: Sequence[Named], patterns: Sequence[str]) -> list[list[Named]]:
    """The cases, or models, of each pattern whose names match it and no earlier one."""
    groups: list[list[Named]] = []
    left = list(cases)
    for pattern in patterns:
        groups.append([c for c in left if fnmatch.fnmatch(c.name, pattern)])
        left = [c for c in left if c not in groups[-1]]
    return groups


if __name__ == "__main__":
    command(main, KEPT)

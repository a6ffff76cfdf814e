"""Two runs side by side: what each found of the program and of the kernels that both have."""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hlotune.tuning_logs.render import WIDTH, kernel_time_text, ratio_text, time_text
from hlotune.tuning_logs.report import KernelReport, Report
from hlotune.tuning_logs.text import escaped

CONDITIONS = ("fingerprint", "toolchain", "cache", "threads", "numerics")
"""Fields of a report that have to be equal for times of two runs to be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A kernel of two runs; None of one that did not have it or did not compare it."""

    key: str
    label: str
    first_default_s: float | None
    second_default_s: float | None
    first_used_s: float | None
    second_used_s: float | None
    first_speedup: float | None
    second_speedup: float | None
    ratio: float | None
    """The second run's speedup over the first one's: above 1 where the second run found more.  Each
    speedup is over the default of its own run, so that a machine that was slower on one day counts
    in neither.
    """
    proven: bool
    """Whether the intervals of both lie apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    first: Report
    second: Report
    differing: tuple[str, ...]
    """Conditions in which the runs differ: their times are not to be compared then."""
    kernels: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        runs = (self.first, self.second)
        return {
            "version": 1,
            "runs": [r.run for r in runs],
            "programs": [r.program for r in runs],
            "whole": [None if r.whole is None else _whole_json(r) for r in runs],
            "differing": list(self.differing),
            "kernels": [asdict(pair) for pair in self.kernels],
        }


def compared(first: Report, second: Report) -> Comparison:
    """Kernels in the order of the first, then those that the second has alone."""
    mine, theirs = _by_key(first), _by_key(second)
    keys = dict.fromkeys([*mine, *theirs])
    return Comparison(
        first=first,
        second=second,
        differing=tuple(c for c in CONDITIONS if getattr(first, c) != getattr(second, c)),
        kernels=tuple(_pair(key, mine.get(key), theirs.get(key)) for key in keys),
    )


def _by_key(report: Report) -> Mapping[str, KernelReport]:
    return {k.key: k for k in report.kernels}


def _pair(key: str, first: KernelReport | None, second: KernelReport | None) -> Pair:
    mine, theirs = (k.champion if k else None for k in (first, second))
    speedups = [k.speedup if k and k.champion else None for k in (first, second)]
    ratio = speedups[1] / speedups[0] if speedups[0] and speedups[1] else None
    apart = bool(
        mine and theirs
        and (mine.speedup_high < theirs.speedup_low or theirs.speedup_high < mine.speedup_low)
    )  # fmt: skip
    known = first or second
    return Pair(
        key=key,
        label=known.label if known else "",
        first_default_s=mine.default_s if mine else None,
        second_default_s=theirs.default_s if theirs else None,
        first_used_s=first.used_s if first else None,
        second_used_s=second.used_s if second else None,
        first_speedup=speedups[0],
        second_speedup=speedups[1],
        ratio=ratio,
        proven=apart,
    )


def _whole_json(report: Report) -> dict[str, float] | None:
    whole = report.whole
    if whole is None:
        return None
    return {
        "default_s": whole.default_s, "tuned_s": whole.tuned_s, "speedup": whole.speedup,
        "speedup_low": whole.speedup_low, "speedup_high": whole.speedup_high,
    }  # fmt: skip


def to_json(found: Comparison) -> str:
    return json.dumps(found.to_json(), indent=2)


COLUMNS = ("default A", "default B", "used A", "used B", "speedup A", "speedup B", "B over A")


def to_text(found: Comparison, width: int = WIDTH) -> str:
    """Lines about both runs, then a table of their kernels."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, no_color=True)
    for line in lines(found):
        console.print(Text(escaped(line)))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("kernel", no_wrap=True, overflow="ellipsis")
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for pair in found.kernels:
        table.add_row(*(Text(escaped(cell)) for cell in cells(pair)))
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def to_markdown(found: Comparison) -> str:
    from hlotune.tuning_logs.flat import as_words

    head = [f"- {as_words(line)}" for line in lines(found)]
    rows = [f"| {' | '.join(map(as_words, cells(pair)))} |" for pair in found.kernels]
    columns = f"| kernel | {' | '.join(COLUMNS)} |"
    rule = f"| --- |{' ---: |' * len(COLUMNS)}"
    return "\n".join(["### Two tuning runs", "", *head, "", columns, rule, *rows]) + "\n"


def lines(found: Comparison) -> Iterator[str]:
    for name, report in (("A", found.first), ("B", found.second)):
        whole = "the whole program was not timed"
        if w := report.whole:
            ratio = ratio_text(w.speedup, w.speedup_low, w.speedup_high)
            whole = f"default {time_text(w.default_s)}, tuned {time_text(w.tuned_s)}: {ratio}"
        yield (
            f"{name}: run {report.run[:12]} of {report.program or 'kernels alone'}, "
            f"{report.started[:19]} UTC, {report.trials} trials, seed {report.seed}: {whole}"
        )
    if found.differing:
        yield (
            f"the runs differ in {', '.join(found.differing)}: their times are not comparable, and "
            "each speedup is over the default of its own run"
        )
    apart = [pair for pair in found.kernels if pair.proven]
    yield (
        f"of {len(found.kernels)} kernels, the intervals of {len(apart)} lie apart (marked *); the "
        "others are the same within their intervals, or stand in one run alone"
    )


def cells(pair: Pair) -> tuple[str, ...]:
    speedups = ("-" if s is None else f"{s:.2f}" for s in (pair.first_speedup, pair.second_speedup))
    mark = "*" if pair.proven else ""
    return (
        pair.label or pair.key[:8],
        kernel_time_text(pair.first_default_s),
        kernel_time_text(pair.second_default_s),
        kernel_time_text(pair.first_used_s),
        kernel_time_text(pair.second_used_s),
        *speedups,
        "-" if pair.ratio is None else f"{pair.ratio:.2f}{mark}",
    )

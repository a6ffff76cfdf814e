"""A report as tables for a terminal; plain text elsewhere."""

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite, log10
from shutil import get_terminal_size
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hlotune.measure.timing.modes import modes
from hlotune.measure.timing.timing import RESOLUTION_S
from hlotune.tuning_logs.best_options import BestOptions
from hlotune.tuning_logs.columns import fitting, left_out
from hlotune.tuning_logs.report import KernelReport, Report, Speedup
from hlotune.tuning_logs.text import escaped
from hlotune.tuning_logs.wrong_defaults import is_wrong, wrong_text

WIDTH = 180
"""Characters of a line that no terminal shows: no figure is ever cut."""

LABEL = 32
"""Characters of a kernel's label that are shown."""
DECISION = 32
"""The same of a decision: more would leave the figures beside it no room."""

NARROW_LABEL = 20
"""What a label keeps before columns are left out."""
SPARE = (
    "failed", "sites", "GFLOP/s", "of peak", "key", "decision", "trials", "of limit", "best, 95 %",
)  # fmt: skip
"""Columns that a narrow terminal goes without, the first of them first."""

BEYOND = (
    "above 100% of the peak or the limit: FLOPs are those of the mathematics, of which Winograd's "
    "algorithms do a part; or the peak was measured while the machine had other work"
)
NAMED = 4
"""Kernels that were left alone for one reason that are named."""
QUIET = 0.05
"""A machine of which other processes take no more than this share is called quiet."""
STEADY = 1.05
"""Batches whose paces are no further apart are compared without a word."""


def render(
    report: Report,
    *,
    color: bool | None = None,
    width: int | None = None,
    limit_shares: Mapping[str, float | None] | None = None,
) -> str:
    """The report as text, with colours where `color` says so, by default where stdout is a
    terminal and the variable NO_COLOR is not set.

    Args:
        width: characters of a line, by default those of the terminal. Columns without room are left
            out, and a line says which.
        limit_shares: by kernel, how near to its limit the code comes that is used.
    """
    width = width or (get_terminal_size().columns if sys.stdout.isatty() else WIDTH)
    color = is_colored() if color is None else color
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=color, no_color=not color, highlight=False
    )
    console.print(_head(report), end="")
    _print_kernels(console, report, width, limit_shares or {})
    if any((kernel.share_of_peak or 0) > 1 for kernel in report.kernels):
        console.print(BEYOND)
    for found in _two_modes(report):
        console.print(Text(found))
    for found in _wrong_defaults(report):
        console.print(_plain(found))
    if report.failures:
        console.print(_failure_table(report))
    for reason, labels in _labels_by_reason(report).items():
        console.print(_plain(f"{_listed(labels)}: {reason}"))
    console.print(_whole(report), end="")
    if report.best_options:
        console.print(_plain(options_text(report.best_options)))
    lines = out.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _print_kernels(
    console: Console, report: Report, width: int, limit_shares: Mapping[str, float | None]
) -> None:
    if not report.kernels:
        return console.print("no kernels were tuned")
    table, missing = _kernel_table(report, width, limit_shares)
    console.print(table)
    if missing:
        console.print(missing)
    return None


def is_colored() -> bool:
    """Whether standard output takes colours, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _plain(text: str) -> Text:
    return Text(escaped(text))


def time_text(seconds: float | None) -> str:
    """Three significant digits, in the unit that suits: `231 us`, `4.10 ms`, `-` for None."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 0.9995:
            return f"{_three_digits(seconds * scale)} {unit}"
    return f"{_three_digits(seconds * 1e9)} ns"


def modes_text(what: str, samples_s: Sequence[float]) -> str:
    """That a default runs at two speeds; nothing of one that has one."""
    found = modes(samples_s)
    if found is None:
        return ""
    return (
        f"{what} ran in two modes, {time_text(found.fast_s)} and, in {found.slow_share:.0%} of its "
        f"samples, {time_text(found.slow_s)}, as its threads shared a processor; speedups are over "
        "the fast one"
    )


def _two_modes(report: Report) -> Iterator[str]:
    """A line of one kernel, or one of several kernels; then one of the program."""
    samples = {k.key[:8]: k.champion.default_samples_s for k in report.kernels if k.champion}
    found = {key: both for key, s in samples.items() if (both := modes(s))}
    if len(found) == 1:
        (key,) = found
        yield modes_text(f"the default of {key}", samples[key])
    elif found:
        each = ", ".join(
            f"{key} {time_text(x.fast_s)} and {time_text(x.slow_s)} ({x.slow_share:.0%})"
            for key, x in found.items()
        )
        yield (
            f"the defaults of {len(found)} kernels ran in two modes, as their threads shared a "
            "processor in a share of their samples; speedups are over the fast one, which is named "
            f"first: {each}"
        )
    if report.whole and (text := modes_text("the default program", report.whole.default_samples_s)):
        yield text


def _wrong_defaults(report: Report) -> Iterator[str]:
    for kernel in report.kernels:
        if is_wrong(kernel.default_error):
            yield f"{kernel.label} ({kernel.key[:8]}): {wrong_text(kernel.default_error)}"
    if report.wrong_default:
        yield report.wrong_default


def kernel_time_text(seconds: float | None) -> str:
    """`<500 ns` for kernels that are faster than the kernel clock can tell."""
    if seconds is not None and seconds <= RESOLUTION_S:
        return f"<{time_text(RESOLUTION_S)}"
    return time_text(seconds)


def took_text(wall_s: float, waited_s: float, away_s: float) -> str:
    """How long a run took, and how much of that is in no budget, where it was any."""
    waited = f", {waited_s:.1f} s of it waiting for another tuner" if waited_s else ""
    away = f", {away_s:.1f} s of it suspended" if away_s else ""
    return f"{wall_s:.1f} s{waited}{away}"


def _three_digits(value: float) -> str:
    whole = int(log10(value)) + 1 if value >= 1 else 1
    return f"{value:.{max(0, 3 - whole)}f}"


def _head(report: Report) -> Text:
    took = "unfinished"
    if report.wall_s is not None:
        took = took_text(report.wall_s, report.waited_s, report.away_s)
    versions = ", ".join(f"{k} {v}" for k, v in report.toolchain.items() if v)
    return _plain(
        f"{report.program or 'kernels alone'} on {report.target}, {report.threads} threads, "
        f"cache {report.cache}, numerics {report.numerics}\n"
        f"run {report.run[:12]}, seed {report.seed}, {report.started[:19]} UTC: "
        f"{_work_text(report)}, {took}\n"
        f"{versions}\n"
        + "".join(f"{note}\n" for note in report.notes)
        + (f"{report.overrun}\n" if report.overrun else "")
        + (f"{load}\n" if (load := load_text(report.others_share)) else "")
        + pace_text(report)
    )


def _work_text(report: Report) -> str:
    """How many trials a search made, and how many kernels were compared without one."""
    compared = sum(k.champion is not None and not k.trials for k in report.kernels)
    first = f"{compared} first candidate{'s' * (compared != 1)} built, verified and compared"
    trials = f"{report.trials} trials of candidates"
    if not compared:
        return trials
    return f"{trials}, {first}" if report.trials else f"no search: {first}"


def load_text(others_share: float | None) -> str:
    """How busy other processes kept the machine; nothing where nobody knows."""
    if others_share is None:
        return ""
    beside = "; times were taken beside them" if others_share > QUIET else ""
    return f"other processes took {others_share:.0%} of the processors during this run{beside}"


def pace_text(report: Report) -> str:
    """A line of how far the machine's pace moved between batches; nothing of fewer than two."""
    fast_s, slow_s = report.fastest_probe_s, report.slowest_probe_s
    if not fast_s or not slow_s or fast_s == slow_s:
        return ""
    apart = "" if slow_s <= STEADY * fast_s else "; times of different batches are that far apart"
    return (
        f"the machine's pace moved by {100 * (slow_s / fast_s - 1):.1f} %: a fixed probe took "
        f"{time_text(fast_s)} in the fastest batch, {time_text(slow_s)} in the slowest{apart}\n"
    )


def _kernel_table(
    report: Report, width: int, limit_shares: Mapping[str, float | None]
) -> tuple[Table, str]:
    """The table, and a line about the columns that have no room."""
    table = Table(box=box.SIMPLE_HEAD, show_footer=True, padding=(0, 1, 0, 0))
    failed = sum(kernel.failures for kernel in report.kernels)
    columns = {
        "kernel": "all kernels", "key": "", "sites": "",
        "trials": str(report.trials), "failed": str(failed),
        "default": "", "used": "", "speedup": "", "best, 95 %": "",
        "GFLOP/s": "", "of peak": "", "of limit": "",
        "decision": "", "won": f"{report.won} of {len(report.kernels)}",
    }  # fmt: skip
    rows = [_kernel_cells(kernel, limit_shares.get(kernel.key)) for kernel in report.kernels]
    widths = {
        name: max(len(name), len(footer), *(len(row[k]) for row in rows), 0)
        for k, (name, footer) in enumerate(columns.items())
    } | {"kernel": NARROW_LABEL}
    shown = fitting(widths, SPARE, width - 2)
    label = max(NARROW_LABEL, width - 2 - sum(widths[n] + 2 for n in shown if n != "kernel"))
    for name, footer in columns.items():
        if name not in shown:
            continue
        words = name in ("kernel", "key", "decision", "won")
        side: Literal["left", "right"] = "left" if words else "right"
        most = label if name == "kernel" else None
        table.add_column(name, footer, justify=side, no_wrap=True, max_width=most)
    for kernel, row in zip(report.kernels, rows, strict=True):
        cells = (cell for name, cell in zip(columns, row, strict=True) if name in shown)
        table.add_row(*map(_plain, cells), style="green" if kernel.won else None)
    return table, left_out([name for name in columns if name not in shown])


def _kernel_cells(kernel: KernelReport, limit_share: float | None) -> tuple[str, ...]:
    """`best, 95 %` is the interval of the best candidate's speedup, won or not."""
    champion = kernel.champion
    interval = f"{champion.speedup_low:.2f} to {champion.speedup_high:.2f}" if champion else "-"
    rate, share = kernel.flop_per_s, kernel.share_of_peak
    return (
        _short(kernel.label, LABEL) or "-",
        kernel.key[:8],
        _sites(kernel),
        str(kernel.trials),
        str(kernel.failures),
        kernel_time_text(champion.default_s if champion else None),
        kernel_time_text(kernel.used_s),
        f"{kernel.speedup:.2f}" if champion else "-",
        interval,
        "-" if rate is None else f"{rate / 1e9:.1f}",
        "-" if share is None else f"{share:.0%}",
        "-" if limit_share is None else f"{limit_share:.0%}",
        _short(_decision(kernel), DECISION),
        "yes" if kernel.won else "no",
    )


def _short(words: str, most: int) -> str:
    """As many of the words as there is room for, with a mark where there are more."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _decision(kernel: KernelReport) -> str:
    """The decision with the algorithm that won, or why the champion was taken back."""
    more = kernel.withdrawn or (kernel.algorithm if kernel.won else None)
    return f"{kernel.decision}: {more}" if more else kernel.decision


def _sites(kernel: KernelReport) -> str:
    """`3`, or `2 x 24` where a site runs more than once."""
    if not kernel.sites or kernel.calls == kernel.sites:
        return str(kernel.sites)
    return f"{kernel.sites} x {kernel.calls / kernel.sites:.3g}"


def _failure_table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("failed candidates")
    table.add_column("count", justify="right")
    table.add_column("kernel of the example")
    table.add_column("the latest message", max_width=80, overflow="fold")
    for line in report.failures:
        cells = (line.kind, str(line.count), line.kernel[:8], line.message.strip())
        table.add_row(*map(_plain, cells))
    return table


def _labels_by_reason(report: Report) -> dict[str, list[str]]:
    """Labels of the kernels that were left alone, by the reason."""
    found: dict[str, list[str]] = {}
    for skip in report.skipped:
        found.setdefault(skip.reason, []).append(skip.label)
    return found


def _listed(labels: Sequence[str]) -> str:
    """The first few labels, and how many more there are."""
    more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
    return f"not tuned, {', '.join(labels[:NAMED])}{more}"


def _whole(report: Report) -> Text:
    if report.whole is None:
        return Text(f"whole program: {report.unproven or 'not timed'}{_error(report)}\n")
    kept = "; XLA keeps all of it" if report.whole.speedup_high < 1 and not report.won else ""
    return Text(f"whole program: {_speedup_text(report.whole)}{kept}{_error(report)}\n")


def options_text(found: BestOptions) -> str:
    """What XLA's own options make of a program, beside XLA by itself."""
    ratio = ratio_text(found.speedup, found.low, inf if found.high is None else found.high)
    return (
        f"XLA's best options: {time_text(found.best_s)}, by itself {time_text(found.default_s)}: "
        f"{ratio}, {json.dumps(found.options, sort_keys=True)}"
    )


def _speedup_text(speedup: Speedup) -> str:
    return (
        f"default {time_text(speedup.default_s)}, tuned {time_text(speedup.tuned_s)}: "
        f"{ratio_text(speedup.speedup, speedup.speedup_low, speedup.speedup_high)}"
        f"{seldom_text(speedup.default_samples_s, speedup.tuned_samples_s)}"
    )


def seldom_text(default_s: Sequence[float], tuned_s: Sequence[float]) -> str:
    """That one side was timed twice, as its calls take seconds; "" where both were timed each time.

    A side that is seldom timed has the lesser of its two times in each further pair, which no clock
    gives by chance.
    """
    for name, samples in (("default", default_s), ("tuned program", tuned_s)):
        first, further = set(samples[:2]), set(samples[2:])
        if len(first) == 2 and further == {min(first)}:
            return f", the {name} timed twice: the interval has the spread of the other side alone"
    return ""


def ratio_text(speedup: float, low: float, high: float) -> str:
    """A speedup with its 95 % interval; where that has 1 inside, it says first that it has."""
    end = f"{high:.2f}" if isfinite(high) else "unknown"
    if low > 1 or high < 1:
        slower = "slower, " if high < 1 else ""
        return f"{slower}{speedup:.2f}x (95 % interval {low:.2f} to {end})"
    return (
        f"no difference proven, the 95 % interval {low:.2f} to {end} includes 1 "
        f"(median {speedup:.2f}x)"
    )


def _error(report: Report) -> str:
    error, default = report.relative_error, report.default_relative_error
    if error is None:
        return ", not checked against the oracle"
    if default is None:
        return f", error {error:.2g} relative RMS against the default (the oracle gave no answer)"
    return f", error {error:.2g} relative RMS against the oracle (default {default:.2g})"

"""A report as Markdown for a pull request, and as CSV for a spreadsheet: one row a kernel."""

import csv
import io
import re
from collections.abc import Sequence

from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.render import kernel_time_text, ratio_text, time_text
from hlotune.tuning_logs.text import escaped

CSV_COLUMNS = (
    "run", "program", "kernel", "label", "sites", "calls", "trials", "failures", "decision", "won",
    "algorithm", "default_s", "used_s", "speedup", "best_speedup", "best_speedup_low",
    "best_speedup_high", "flop_per_s", "share_of_peak", "limit_s", "limit_share",
    "speed_of_light_score",
)  # fmt: skip
"""Units stand in the names; what is not known is empty."""


def to_csv(found: Evidence) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for kernel in found.kernels:
        writer.writerow(["" if x is None else _cell(x) for x in _csv_row(found, kernel)])
    return out.getvalue()


def _cell(value: object) -> object:
    """Text that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    text = escaped(value, keep="")
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _csv_row(found: Evidence, kernel: KernelEvidence) -> Sequence[object]:
    report, champion = kernel.report, kernel.report.champion
    return (
        found.report.run, found.report.program, report.key, report.label, report.sites,
        report.calls, report.trials, report.failures, report.decision, report.won,
        report.algorithm, kernel.default_s, report.used_s, report.speedup,
        champion.speedup if champion else None,
        champion.speedup_low if champion else None,
        champion.speedup_high if champion else None,
        report.flop_per_s, report.share_of_peak,
        kernel.limit.time_s if kernel.limit else None, kernel.limit_share, kernel.score,
    )  # fmt: skip


def to_markdown(found: Evidence) -> str:
    """The verdict, a table of the kernels, and where the figures come from."""
    report, whole = found.report, found.report.whole
    verdict = f"Whole program: {as_words(report.unproven or 'not timed')}."
    if whole:
        verdict = (
            f"Whole program: default {time_text(whole.default_s)}, tuned "
            f"{time_text(whole.tuned_s)}: "
            f"**{ratio_text(whole.speedup, whole.speedup_low, whole.speedup_high)}**."
        )
    columns = (
        "kernel", "calls", "default", "used", "speedup", "best, 95 %", "of the limit", "decision",
    )  # fmt: skip
    lines = [
        f"### Tuning report of {as_words(report.program or 'kernels alone')}",
        "",
        verdict,
        f"{report.won} of {len(report.kernels)} kernels are faster, after {report.trials} trials.",
        "",
        f"| {' | '.join(columns)} |",
        f"| --- |{' ---: |' * (len(columns) - 2)} --- |",
        *(f"| {' | '.join(_markdown_row(k))} |" for k in found.kernels),
        "",
        *(f"- {as_words(note)}" for note in (*report.notes, report.overrun) if note),
        f"- {as_words(report.target)}, {report.threads} threads, numerics {report.numerics}, cache "
        f"{report.cache}, seed {report.seed}",
        f"- {as_words(', '.join(f'{k} {v}' for k, v in report.toolchain.items() if v))}; run "
        f"{report.run[:12]}, {report.started[:10]}",
    ]
    return "\n".join(lines) + "\n"


def _markdown_row(kernel: KernelEvidence) -> tuple[str, ...]:
    report, champion = kernel.report, kernel.report.champion
    more = report.withdrawn or (report.algorithm if report.won else None)
    return (
        as_words(report.label or report.key[:8]),
        f"{report.calls:g}",
        kernel_time_text(kernel.default_s),
        kernel_time_text(report.used_s),
        f"{report.speedup:.2f}",
        f"{champion.speedup_low:.2f} to {champion.speedup_high:.2f}" if champion else "-",
        "-" if kernel.limit_share is None else f"{kernel.limit_share:.0%}",
        as_words(f"{report.decision}: {more}" if more else report.decision),
    )


def as_words(text: str) -> str:
    """Text of records on one line, in which nothing is taken for Markdown or HTML."""
    plain = " ".join(escaped(text, keep="").split())
    return re.sub(r"([\\`*_\[\]<>|#~&@])", r"\\\1", plain)

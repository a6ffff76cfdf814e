"""A report as one HTML file that needs nothing else: no network, no script, no fonts.

Each kernel has a page within the file, which a link shows; without style sheets, and in print, all
stand one below the other.  The file stays under a limit: of what is largest, the code, as much is
shown as fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hlotune.schedules.targets.limit import limit_of
from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.figures.canvas import Figure
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.program import program_figures
from hlotune.tuning_logs.page.kernel_page import kernel_page
from hlotune.tuning_logs.page.markup import Markup, joined, tag
from hlotune.tuning_logs.page.overview import headline, overview
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated

MOST_BYTES = 4 << 20
LINES = (1200, 400, 150, 60, 0)
"""Lines of assembly and of LLVM text that a kernel's page may show, until the file fits."""
MOST_FIGURES = 60
"""Kernels with a figure of their own: those that take most time."""
NOTHING_LOADED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(found: Evidence, code: dict[str, Regenerated | Missing], version: str) -> str:
    """The HTML of a report.

    Args:
        code: what became of each kernel's champion again.
        version: of the hlotune that writes it.

    Raises VersionError where matplotlib is not installed.
    """
    found = with_limits(found, code)
    figures = tuple(program_figures(found))
    first = overview(found, figures, code, version)
    drawn = [trials(k) for k in found.kernels[:MOST_FIGURES]]
    drawn += [None] * (len(found.kernels) - len(drawn))
    for most_lines in LINES:
        text = _document(found, joined(first, *_pages(found, code, drawn, most_lines)))
        if len(text.encode()) < MOST_BYTES:
            break
    return text


def with_limits(found: Evidence, code: dict[str, Regenerated | Missing]) -> Evidence:
    """The same with the arithmetic and the limit of kernels whose compute was made again."""
    return replace(found, kernels=tuple(_limited(found, k, code) for k in found.kernels))


def _limited(
    found: Evidence, kernel: KernelEvidence, code: dict[str, Regenerated | Missing]
) -> KernelEvidence:
    made = code.get(kernel.report.key)
    if kernel.limit or not isinstance(made, Regenerated) or not found.target or not found.peaks:
        return kernel
    limit = None
    if kernel.moved_bytes is not None:
        limit = limit_of(made.flops, kernel.moved_bytes, made.dtype, found.target, found.peaks)
    return replace(kernel, flops=made.flops, dtype=made.dtype, limit=limit)


def _pages(
    found: Evidence, code: dict[str, Regenerated | Missing], drawn: Sequence[Figure | None],
    most_lines: int,
) -> Iterator[Markup]:  # fmt: skip
    kernels = found.kernels
    for n, (kernel, figure) in enumerate(zip(kernels, drawn, strict=True)):
        around = (kernels[n - 1], kernels[(n + 1) % len(kernels)]) if len(kernels) > 1 else ()
        made = code.get(kernel.report.key)
        yield kernel_page(kernel, made, figure, found.peaks, most_lines, around)


def _document(found: Evidence, pages: Markup) -> str:
    report = found.report
    name = report.program or "kernels alone"
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=NOTHING_LOADED),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", f"{name}: {headline(report)[0]} (hlotune report)"),
        tag("style", Markup(style)),
    )
    top = tag(
        "header",
        tag("a", "To the report", href="#main", class_="skip"),
        tag("h1", f"Tuning report of {name}"),
        tag("p", f"{report.target}, {report.threads} threads, {report.started[:10]}, run "
            f"{report.run[:12]}", class_="muted"),
        class_="top",
    )  # fmt: skip
    end = tag("footer", "Written by hlotune from the records of this run alone. This file loads "
              "nothing from anywhere and runs no script.")  # fmt: skip
    body = tag("body", top, tag("main", pages, id="main"), end)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"

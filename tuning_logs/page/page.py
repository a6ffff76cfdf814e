"""A report as one HTML file that needs nothing else: no network, no script, no fonts.

Each kernel has a page within the file, which a link shows; without style sheets, and in print, all
stand one below the other.  The file stays under a limit: of what is largest, the code, as much is
shown as fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hlotune.schedules.targets.limit import limit_of
from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.figures.canvas import Figure
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.program import program_figures
from hlotune.tuning_logs.page.document import document
from hlotune.tuning_logs.page.kernel_page import kernel_page
from hlotune.tuning_logs.page.markup import Markup, joined
from hlotune.tuning_logs.page.overview import headline, overview
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated

MOST_BYTES = 4 << 20
LINES = (1200, 400, 150, 60, 0)
"""Lines of assembly and of LLVM text that a kernel's page may show, until the file fits."""
MOST_FIGURES = 60
"""Kernels with a figure of their own: those that take most time."""


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
    return document(
        title=f"{name}: {headline(report)[0]} (hlotune report)",
        heading=f"Tuning report of {name}",
        about=f"{report.target}, {report.threads} threads, {report.started[:10]}, run "
        f"{report.run[:12]}",
        body=pages,
    )

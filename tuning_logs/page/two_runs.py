"""Two runs side by side as one page: verdicts, kernels, curves, provenance."""

from collections.abc import Iterator

from hlotune.tuning_logs.comparison import COLUMNS, Comparison, cells, compared
from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures import two_runs
from hlotune.tuning_logs.page.document import document
from hlotune.tuning_logs.page.markup import Markup, joined, tag
from hlotune.tuning_logs.page.overview import verdict
from hlotune.tuning_logs.page.parts import figure, table
from hlotune.tuning_logs.page.provenance import origins

MARKED = (
    "B over A is the second speedup over the first, each over the default of its own run. A star "
    "marks kernels whose intervals lie apart; the others are the same within their intervals, or "
    "stand in one run alone."
)


def two_runs_page(first: Evidence, second: Evidence, version: str) -> str:
    """The HTML file; `version` is that of the hlotune that writes it.

    Raises VersionError where matplotlib is not installed.
    """
    names = [f.report.program or "kernels alone" for f in (first, second)]
    same = names[0] == names[1]
    return document(
        title=f"{' and '.join(names[: 1 if same else 2])}: two tuning runs (hlotune report)",
        heading=f"Two tuning runs of {names[0]}" if same else f"Runs of {' and '.join(names)}",
        about=f"A is run {first.report.run[:12]}, B is run {second.report.run[:12]}",
        body=two_runs_section(first, second, version),
    )


def two_runs_section(first: Evidence, second: Evidence, version: str) -> Markup:
    found = compared(first.report, second.report)
    speedups = two_runs.speedups(found, [*second.kernels, *first.kernels])
    searches = two_runs.searches(first, second)
    return tag(
        "section",
        _verdicts(first, second),
        *_conditions(found),
        tag("h2", "Kernels", id="kernels"),
        figure(speedups) if speedups else tag("p", "No kernel was compared in both runs."),
        table("Kernels of both runs", ("<kernel", *COLUMNS), map(cells, found.kernels)),
        tag("p", MARKED, class_="muted"),
        tag("h2", "The searches", id="searches"),
        figure(searches) if searches else tag("p", "Neither run measured a candidate."),
        tag("h2", "Provenance", id="provenance"),
        _origins(first, second, version),
        id="overview", class_="page", aria_label="Two runs",
    )  # fmt: skip


def _verdicts(first: Evidence, second: Evidence) -> Markup:
    sides = (
        tag(
            "section",
            tag("h2", f"{name}: {found.report.started[:16].replace('T', ' ')} UTC"),
            verdict(found.report),
            tag("p", f"{found.report.won} of {len(found.report.kernels)} kernels are faster, after "
                f"{found.report.trials} trials.", class_="muted"),
            aria_label=f"Run {name}",
        )
        for name, found in (("A", first), ("B", second))
    )  # fmt: skip
    return tag("div", *sides, class_="sides")


def _conditions(found: Comparison) -> Iterator[Markup]:
    if found.differing:
        yield tag(
            "p",
            f"The runs differ in {', '.join(found.differing)}: their times are not comparable, and "
            "each speedup is over the default of its own run.",
            class_="note",
        )


def _origins(first: Evidence, second: Evidence, version: str) -> Markup:
    """One table; a row that differs is marked."""
    sides = [dict(origins(found, version)) for found in (first, second)]
    names = dict.fromkeys(name for side in sides for name in side)
    rows = []
    for name in names:
        values = [str(side.get(name) or "-") for side in sides]
        rows.append((joined(name, "" if values[0] == values[1] else " (differs)"), *values))
    return table("Where the figures of both come from", ("<name", "<A", "<B"), rows)

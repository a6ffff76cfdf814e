"""`tune report`: what a run found, from the database alone: on the terminal, or as files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hlotune.cli.options import Database, Json
from hlotune.cli.outputs import require_place, writing
from hlotune.cli.printing import say
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.tuning_logs.evidence import Evidence

EXAMPLE = "Example: tune report model -o report.html --database tuning.db"

Form = Literal["text", "html", "json", "markdown", "csv"]
FORMS: dict[str, Form] = {
    ".html": "html", ".htm": "html", ".json": "json", ".md": "markdown", ".csv": "csv",
    ".txt": "text",
}  # fmt: skip
"""By the ending of a file."""


Run = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM|RUN",
        help="Name of a program, for its newest run; or first digits of a run's id.",
        show_default=False,
    ),
]
Other = Annotated[
    str | None,
    typer.Argument(
        metavar="[PROGRAM|RUN]",
        help="A second run, which is compared with the first.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the report to a file: one page with figures and code (.html), or .md, "
        ".csv, .json, .txt.",
        show_default=False,
    ),
]
Figures = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write each figure as SVG and PNG into a folder, which is made.",
        show_default=False,
    ),
]


def report(
    run: Run,
    other: Other = None,
    database: Database = None,
    output: Output = None,
    figures: Figures = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, as for a pull request.")
    ] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row a kernel.")] = False,
    json: Json = False,
) -> None:
    """Prints the report of a recorded run, or writes it to a file; or holds two runs together."""
    form = form_of(output, markdown=markdown, csv=csv, json=json)
    path = database_path(database)
    if output is not None:
        require_place(output, path)
    if other is not None:
        return print_comparison(path, (run, other), output, form, figures)
    if output is None and figures is None:
        return print_report(path, run, json=form == "json", form=form)
    return write_report(path, run, output, form, figures)


def form_of(output: Path | None, *, markdown: bool, csv: bool, json: bool) -> Form:
    """What is written.  Raises typer.BadParameter where that is not clear."""
    named: list[Form] = []
    named += ["markdown"] if markdown else []
    named += ["csv"] if csv else []
    named += ["json"] if json else []
    if len(named) > 1:
        raise typer.BadParameter(f"expected one form, got --{' and --'.join(named)}; choose one")
    if output is None:
        return named[0] if named else "text"
    form = FORMS.get(output.suffix.lower())
    if named and form not in (None, named[0]):
        raise typer.BadParameter(
            f"expected --{named[0]} or a name that says another form, got both with {output}; "
            "leave one out"
        )
    if form is None and not named:
        raise typer.BadParameter(
            f"expected a file whose name ends in {', '.join(FORMS)}, got {output}; rename it"
        )
    return named[0] if named else form or "text"


def print_comparison(
    database: Path, runs: tuple[str, str], output: Path | None, form: Form, figures: Path | None
) -> None:
    """Two runs of one database, side by side."""
    from hlotune.tuning_logs import comparison
    from hlotune.tuning_logs import report as reports
    from hlotune.tuning_logs.database import Database as TuningDatabase

    makers = {
        "text": comparison.to_text, "json": comparison.to_json, "markdown": comparison.to_markdown,
    }  # fmt: skip
    if form == "html" and output is not None and figures is None:
        write_comparison(database, runs, output)
        return
    if form not in makers or figures is not None:
        raise typer.BadParameter(
            "expected text, -o with a name in .html, --markdown or --json of two runs, got another "
            "form; leave the second run out"
        )
    with TuningDatabase(database, read_only=True) as opened:
        first, second = (reports.report(opened, run) for run in runs)
    text = makers[form](comparison.compared(first, second))
    if output is None:
        print(text.rstrip("\n"))
    else:
        write(output, f"{text.rstrip()}\n")
        say(f"report: {output}")


def write_comparison(database: Path, runs: tuple[str, str], output: Path) -> None:
    """Two runs as one page."""
    from hlotune import __version__
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.evidence import evidence
    from hlotune.tuning_logs.figures.canvas import require_matplotlib
    from hlotune.tuning_logs.page.two_runs import two_runs_page

    require_matplotlib()
    with TuningDatabase(database, read_only=True) as opened:
        first, second = (evidence(opened, run) for run in runs)
    write(output, two_runs_page(first, second, __version__))
    say(f"report: {output}")


def print_report(database: Path, run: str, *, json: bool, form: Form = "text") -> None:
    """Also what `tune run` ends with."""
    print(text_of(database, run, "json" if json else form))


def text_of(database: Path, run: str, form: Form) -> str:
    """A report in a form that needs no figures."""
    from hlotune.tuning_logs import flat
    from hlotune.tuning_logs import report as reports
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.evidence import evidence
    from hlotune.tuning_logs.render import render

    with TuningDatabase(database, read_only=True) as opened:
        if form == "json":
            return reports.to_json(reports.report(opened, run))
        found = evidence(opened, run)
    if form == "text":
        shares = {k.report.key: k.limit_share for k in found.kernels}
        return render(found.report, limit_shares=shares)
    return (flat.to_csv if form == "csv" else flat.to_markdown)(found).rstrip("\n")


def write_report(
    database: Path, run: str, output: Path | None, form: Form, figures: Path | None
) -> None:
    """Writes a file and figures, and says where they are."""
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.evidence import evidence
    from hlotune.tuning_logs.figures.canvas import require_matplotlib

    if form == "html" or figures is not None:
        require_matplotlib()
    if form != "html" and output is not None:
        write(output, text_of(database, run, form) + "\n")
    if form == "html" or figures is not None:
        with TuningDatabase(database, read_only=True) as opened:
            found = evidence(opened, run)
        draw(found, output if form == "html" else None, figures)
    if output is not None:
        say(f"report: {output}")


def draw(found: "Evidence", output: Path | None, figures: Path | None) -> None:
    """The page, and the figures as files."""
    from hlotune import __version__
    from hlotune.cli.progress import telling
    from hlotune.tuning_logs.figures.files import write_figures
    from hlotune.tuning_logs.page.page import page, with_limits
    from hlotune.tuning_logs.page.regenerated import Regenerated, model_of, regenerated

    with telling() as tell:
        tell("making the code of the kernels again")
        code = regenerated(found.kernels, found.target, model_of(found.options))
        if output is not None:
            tell("drawing the report")
            write(output, page(found, code, __version__))
        if figures is not None:
            with writing(figures):
                made = [c for c in code.values() if isinstance(c, Regenerated) and c.predicted]
                predicted = [c.predicted for c in made]
                count = write_figures(with_limits(found, code), figures, predicted)
    if figures is not None:
        say(f"figures: {count} as SVG and PNG in {figures}")


def write(path: Path, text: str) -> None:
    from hlotune.schedules.atomic_files import whole

    with writing(path), whole(path) as part:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")

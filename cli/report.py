"""`tune report`: what a run found, from the database alone."""

from pathlib import Path
from typing import Annotated

import typer

from hlotune.cli.options import Database, Json
from hlotune.tuning_logs.default_path import database_path

EXAMPLE = "Example: tune report model --database tuning.db"


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM|RUN",
            help="Name of a program, for its newest run; or first digits of a run's id.",
            show_default=False,
        ),
    ],
    database: Database = None,
    json: Json = False,
) -> None:
    """Prints the report of a recorded run."""
    print_report(database_path(database), run, json=json)


def print_report(database: Path, run: str, *, json: bool) -> None:
    """Also what `tune run` ends with."""
    from hlotune.tuning_logs import report as reports
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.render import render

    with TuningDatabase(database, read_only=True) as opened:
        found = reports.report(opened, run)
    print(reports.to_json(found) if json else render(found))

"""`tune dashboard`: reports of all runs in a browser, live, and runs replayed."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hlotune.cli.printing import say
from hlotune.tuning_logs.default_path import database_path

EXAMPLE = "Example: tune dashboard --database tuning.db"
PORT = 8642


def dashboard(
    databases: Annotated[
        list[Path] | None,
        typer.Option(
            "--database",
            "--db",
            metavar="FILE",
            help="Tuning database; once for each.  [default: $HLOTUNE_DB, else a file in the "
            "user's cache]",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port of 127.0.0.1; 0 takes any that is free."
        ),
    ] = PORT,
) -> None:
    """Serves the reports of all runs to a browser on this machine, until Ctrl-C; it only reads."""
    from hlotune import __version__
    from hlotune.tuning_logs.dashboard import serving
    from hlotune.tuning_logs.dashboard.sources import sources

    serving.require_libraries()
    found = sources(databases or [database_path(None)])
    from hlotune.tuning_logs.dashboard.app import Dashboard

    app = Dashboard(found, __version__)
    try:
        listening = serving.bound(port)
    except OSError as error:
        raise typer.BadParameter(
            f"expected port {port} of {serving.LOOPBACK} to be free, got {error.strerror or error};"
            " name another with --port, or 0 for any that is free"
        ) from error
    serving.serve(app, listening, lambda at: tell(f"dashboard: {at} (Ctrl-C ends it)"))
    tell("dashboard: ended")


def tell(words: str) -> None:
    """At once, also where nobody sits at a terminal."""
    say(words, file=sys.stdout)

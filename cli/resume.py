"""`tune resume`: goes on with a run that was interrupted."""

from pathlib import Path
from typing import Annotated

import typer

from hlotune.cli.loading import load_program
from hlotune.cli.options import ArgumentTypes, Database, Dimensions, Json
from hlotune.cli.run import end
from hlotune.measure.machine.suspend_clock import beating
from hlotune.tuning_logs.default_path import database_path

EXAMPLE = "Example: tune resume 5f0c --database tuning.db"

ModelFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The model that the run began with, where it was given --model-file.",
        show_default=False,
    ),
]


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or its beginning.")],
    database: Database = None,
    model_file: ModelFile = None,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Goes on with an interrupted run: its program, searcher, seed, and the budget that is left.

    On the machine and with the versions that it began with.
    """
    from hlotune.search.resuming import interrupted
    from hlotune.tuning_logs.database import Database as TuningDatabase

    path = database_path(database)
    with beating() as pulse:
        with TuningDatabase(path, read_only=True) as opened:
            before = interrupted(opened, run)
        loaded = load_program(before.source, arg, dim)
        from hlotune.cli.progress import watching
        from hlotune.cli.report import print_report
        from hlotune.codegen.runtime.malloc_settings import keep_memory
        from hlotune.search.resuming import resume as go_on

        keep_memory()
        with watching(quiet=json) as progress:
            result = go_on(
                loaded,
                before.run,
                database=path,
                model_file=model_file,
                progress=progress,
                pulse=pulse,
            )
    print_report(result.database, result.run, json=json)
    end(result, before.budget_s, model_file, arg or (), dim or ())

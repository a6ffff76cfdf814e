"""`tune resume`: goes on with a run that was interrupted."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hlotune.cli.loading import load_program
from hlotune.cli.options import (
    ArgumentTypes,
    Database,
    Devices,
    Dimensions,
    Events,
    Json,
    Quiet,
    Trips,
)
from hlotune.cli.outcome import end
from hlotune.measure.machine.suspend_clock import beating
from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.search.resuming import Interrupted

EXAMPLE = "Example: tune resume 5f0c --database tuning.db"

ModelFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The model that the run began with, where it was given --model-file.",
        show_default=False,
    ),
]


Run = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or its beginning.")]
Named = Annotated[
    str | None,
    typer.Argument(
        metavar="[PROGRAM]",
        help="What the run tunes, as `tune run` takes it.  Needed where that is Python code "
        "and this user has not begun the run here, in this folder.",
        show_default=False,
    ),
]


def resume(
    run: Run,
    program: Named = None,
    database: Database = None,
    model_file: ModelFile = None,
    devices: Devices = 1,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    trips: Trips = None,
    quiet: Quiet = False,
    events: Events = False,
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
        source = program or trusted(before)
        # trips of all loops were also said of modules of a folder that have none
        loaded = load_program(source, arg, dim, trips, may_lack_loops=True)
        from hlotune.cli.progress import watching
        from hlotune.cli.report import print_report
        from hlotune.codegen.runtime.malloc_settings import keep_memory
        from hlotune.search.resuming import resume as go_on

        keep_memory()
        with watching(quiet=quiet or json, events=events) as progress:
            result = go_on(
                loaded, before.run, database=path, model_file=model_file, progress=progress,
                devices=devices, pulse=pulse,
            )  # fmt: skip
    print_report(result.database, result.run, json=json)
    given = (arg or (), dim or (), trips or (), devices)
    end(result, before.budget_s, model_file, *given, is_new=False)


def trusted(before: "Interrupted") -> str:
    """The program that a database names.

    Raises DatabaseError where to load it would run code that a stranger may have named.
    """
    from hlotune.hlo.frontends.file_kinds import names_a_file
    from hlotune.tuning_logs.own_runs import is_own

    if names_a_file(before.source) or is_own(before.run, before.source):
        return before.source
    raise DatabaseError(
        f"expected a run that this user began here, got {before.run}, whose database says to run "
        f"the Python code {before.source}; if you trust it, name it: "
        f"{shlex.join(['tune', 'resume', before.run[:12], before.source])}"
    )

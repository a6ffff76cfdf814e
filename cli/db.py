"""`tune db`: what a database holds, and its records as JSON lines."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from hlotune.cli.options import Database, Json
from hlotune.cli.outputs import require_place, writing
from hlotune.cli.printing import counted, print_json, print_table, say, times
from hlotune.tuning_logs.default_path import database_path

EXAMPLE = "Example: tune db ls --database tuning.db"

UNSOUND = 2
"""Exit code of a check that finds problems."""

app = typer.Typer(help="Looks after the tuning database.", no_args_is_help=True)


@app.command("ls", epilog=EXAMPLE)
def ls(database: Database = None, json: Json = False) -> None:
    """Lists the kernels recorded, most tried first."""
    from hlotune.schedules.errors import NoRecord
    from hlotune.tuning_logs import listing
    from hlotune.tuning_logs.database import Database as TuningDatabase

    path = database_path(database)
    with TuningDatabase(path, read_only=True) as opened:
        lines = listing.ls(opened)
    if not lines:
        raise NoRecord(f"database {path}: expected kernels, found none; `tune run` records them")
    if json:
        return print_json([asdict(line) for line in lines])
    rows = [
        (x.key[:8], x.label, str(x.trials), str(x.failures), str(x.targets), times(x.speedup))
        for x in lines
    ]
    columns = ["kernel", "label", ">trials", ">failed", ">targets", ">best speedup"]
    return print_table(columns, rows)


@app.command("stats", epilog="Example: tune db stats --database tuning.db --json")
def stats(database: Database = None, json: Json = False) -> None:
    """Counts what is recorded: runs, trials, failures by kind, the largest speedups."""
    from hlotune.tuning_logs import listing
    from hlotune.tuning_logs.database import Database as TuningDatabase

    with TuningDatabase(database_path(database), read_only=True) as opened:
        found = listing.stats(opened)
    if json:
        return print_json(asdict(found))
    defaults = found.rows["trials"] - found.candidates
    of_these = {"trials": f"{found.candidates} of candidates, {defaults} of defaults"}
    tables = [(name, str(n), of_these.get(name, "")) for name, n in found.rows.items()]
    print_table(["table", ">rows", "of these"], tables)
    if found.runs:
        runs = [
            (r.id[:8], r.program, r.started[:16], "yes" if r.finished else "no", str(r.trials))
            for r in found.runs
        ]
        print()
        print_table(["run", "program", "started (UTC)", "finished", ">candidates"], runs)
    if found.failures:
        failures = [(f.kind, str(f.count), f.kernel[:8], f.message) for f in found.failures]
        print()
        print_table(["failure", ">count", "kernel", "latest message"], failures)
    if found.speedups:
        won = [(x.key[:8], x.label, times(x.speedup)) for x in found.speedups]
        print()
        print_table(["kernel", "label", ">speedup"], won)
    return None


@app.command("export", epilog="Example: tune db export records.jsonl --database tuning.db")
def export(
    file: Annotated[Path, typer.Argument(help="File to write.", show_default=False)],
    form: Annotated[
        Literal["lines", "t4", "optuna"],
        typer.Option(
            "--format",
            help="JSON lines, which `tune db import` reads; or t4, the results that autotuners "
            "such as Kernel Tuner share; or optuna, studies in an SQLite file that Optuna's "
            "dashboard opens.  The last two have trials alone.",
        ),
    ] = "lines",
    database: Database = None,
    json: Json = False,
) -> None:
    """Writes all records as JSON lines, each complete in itself.

    Where an interrupted search stood is no record: resume it where it began.
    """
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.optuna_study import export_optuna
    from hlotune.tuning_logs.records import export_records
    from hlotune.tuning_logs.t4 import export_t4

    path = database_path(database)
    require_place(file, path)
    with TuningDatabase(path, read_only=True) as opened:
        if form != "lines":
            with writing(file):
                written = {"t4": export_t4, "optuna": export_optuna}[form](opened, file)
        else:
            written = export_records(opened, file)
    if json:
        return print_json({"file": str(file), "records": written})
    out = sys.stdout if file.is_file() else sys.stderr
    return print(f"{counted(written, 'record')} in {file}", file=out)


@app.command("import", epilog="Example: tune db import records.jsonl --database tuning.db")
def import_(
    file: Annotated[Path, typer.Argument(help="JSON lines to read.", show_default=False)],
    database: Database = None,
    json: Json = False,
) -> None:
    """Reads records from JSON lines; what is known already stays, broken lines are counted."""
    from hlotune.schedules.errors import DatabaseError
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.records import import_records, no_records

    if file.is_dir() or not file.exists():  # before a database is made for nothing
        got = "a folder" if file.is_dir() else "no such file"
        raise DatabaseError(f"expected JSON lines at {file}, got {got}; check the path")
    with TuningDatabase(database_path(database)) as opened:
        taken = import_records(opened, file)
    if taken.broken and not taken.records:
        raise no_records(file, taken)
    if json:
        return print_json(asdict(taken))
    print(
        f"{counted(taken.records, 'record')}, {taken.added} new, "
        f"{counted(taken.broken, 'broken line')} skipped"
    )
    for problem in taken.problems:
        say(f"  {problem}")
    return None


@app.command("merge", epilog="Example: tune db merge elsewhere.db --database tuning.db")
def merge(
    other: Annotated[
        Path, typer.Argument(metavar="FILE", help="Database to take in.", show_default=False)
    ],
    database: Database = None,
    json: Json = False,
) -> None:
    """Adds all that another database knows; what is known already stays."""
    from hlotune.tuning_logs import merge as merging
    from hlotune.tuning_logs.database import Database as TuningDatabase

    # What cannot be opened shall leave no new database.
    TuningDatabase(other, read_only=True).close()
    with TuningDatabase(database_path(database)) as opened:
        added = merging.merge(opened, other)
    if json:
        return print_json({"file": str(other), "added": added})
    return print_table(["table", ">new rows"], [(name, str(n)) for name, n in added.items()])


@app.command("prune", epilog="Example: tune db prune --keep 100 --database tuning.db")
def prune(
    keep: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Trials kept of a kernel under equal conditions, the fastest ones.",
        ),
    ] = 100,
    database: Database = None,
    json: Json = False,
) -> None:
    """Drops failures and slow trials; what is applied stays the same."""
    from hlotune.tuning_logs import maintenance
    from hlotune.tuning_logs.database import Database as TuningDatabase

    with TuningDatabase(database_path(database), create=False) as opened:
        dropped = maintenance.prune(opened, keep=keep)
    if json:
        return print_json({"dropped_trials": dropped})
    return print(f"{counted(dropped, 'trial')} dropped")


@app.command("check", epilog="Example: tune db check --database tuning.db")
def check(database: Database = None, json: Json = False) -> None:
    """Reads everything, and says what cannot be used; exit code 2 where there is any such thing."""
    from hlotune.tuning_logs import maintenance
    from hlotune.tuning_logs.database import Database as TuningDatabase

    with TuningDatabase(database_path(database), read_only=True) as opened:
        found = maintenance.check(opened)
    if json:
        print_json(asdict(found))
    else:
        counts = f"{counted(found.rows, 'row')}, {counted(len(found.problems), 'problem')}"
        say("\n".join([*found.problems, counts]))
    if found.problems:
        raise typer.Exit(UNSOUND)

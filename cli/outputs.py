"""Files that commands write: what is refused before anything that takes long."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import typer

from hlotune.schedules.atomic_files import database_of


def require_place(path: Path, *inputs: Path) -> None:
    """Refuses an output that cannot be written, or that would take something away.

    That is a database, a file that SQLite keeps beside one, or one of the `inputs` of the command.
    Raises typer.BadParameter.
    """
    with writing(path):
        database = database_of(path)
    if database is not None:
        raise typer.BadParameter(
            f"expected a file to write, got {path}, where the database {database} would be lost; "
            "name another path"
        )
    for given in inputs:
        if path.is_file() and given.exists() and os.path.samefile(path, given):
            raise typer.BadParameter(
                f"expected a file to write, got {path}, which this command reads; name another path"
            )
    if path.is_dir():
        raise typer.BadParameter(f"expected a file to write, got the folder {path}; name a file")
    if not path.parent.is_dir():
        raise typer.BadParameter(
            f"expected to write to {path}, got no folder for it; name another path"
        )
    if path.is_file() or not path.exists():  # in whose folder the new one is made
        with writing(path), TemporaryFile(dir=path.resolve().parent):
            pass


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns errors of the system into one line about the output.  Raises typer.BadParameter."""
    try:
        yield
    except OSError as error:
        raise typer.BadParameter(
            f"expected to write to {path}, got {error.strerror or error}; name another path, or "
            "free some space"
        ) from error

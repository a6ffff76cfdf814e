"""Options and arguments that several commands share, and how their texts are read."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def seconds(text: str) -> float:
    """A budget like `90s`, `5m`, `1h30m`, in seconds."""
    from hlotune.search import budget

    try:
        return budget.seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def database_path(chosen: Path | None) -> Path:
    """The database a command uses: `--database`, else HLOTUNE_DB, else one in the user's cache."""
    if chosen is not None:
        return chosen
    if named := os.environ.get("HLOTUNE_DB"):
        return Path(named).expanduser()
    return cache_directory() / "hlotune" / "tuning.db"


def cache_directory() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    name = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return Path(os.environ.get(name) or Path.home() / ".cache")


Program = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="path.py:name or package.module:name of a factory that returns (function, arguments), "
        "or of a function with --arg for each argument; or a .mlir or .mlirbc file.",
        show_default=False,
    ),
]
ArgumentTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="TYPE",
        help="Type of an argument, as in f32[8,784]; once for each argument of a bare function.",
        show_default=False,
    ),
]
Database = Annotated[
    Path | None,
    typer.Option(
        "--database",
        "--db",
        metavar="FILE",
        help="Tuning database.  [default: $HLOTUNE_DB, else a file in the user's cache]",
        show_default=False,
    ),
]
Numerics = Annotated[
    Literal["strict", "standard", "fast"], typer.Option(help="How exact results must be.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: units are in the names.")]

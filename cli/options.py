"""Options and arguments that several commands share, and how their texts are read."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def seconds(text: str) -> float:
    """A budget like `90s`, `5m`, `1h30m`, in seconds."""
    from hlotune.search.budget import limits

    try:
        return limits.seconds(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Program = Annotated[
    str,
    typer.Argument(
        metavar="PROGRAM",
        help="path.py:name or package.module:name of a factory that returns (function, arguments); "
        "of a function with --arg for each argument; or a file (.mlir, .mlirbc, .hlo, .txt, .pb, "
        ".onnx, .pt2); `tune run` also takes a folder that XLA dumped its modules into.",
        show_default=False,
    ),
]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        metavar="NAME",
        help="The device, here or not: cuda:a100, cuda:h100, cuda:h200, tpu:v5e, tpu:v6e.",
        show_default=False,
    ),
]
Devices = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="GPUs of this kind to measure on at the same time."),
]
AnyJaxlib = Annotated[
    bool,
    typer.Option(
        "--any-jaxlib",
        help="Use schedules tuned with another jaxlib, where a quick comparison proves them faster "
        "than the default of this one.",
    ),
]
ArgumentTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="TYPE",
        help="Type of an argument, as in f32[8,784], or in f32[batch,784] with --dim; once for "
        "each argument of a bare function.",
        show_default=False,
    ),
]
Dimensions = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE[,SIZE]",
        help="Size of a symbolic dimension, as in batch=8; once for each.  Several sizes, as in "
        "batch=1,8,32, make a variant of the program each, in `tune run`, `bench` and `apply`.",
        show_default=False,
    ),
]
Trips = Annotated[
    list[str] | None,
    typer.Option(
        "--trips",
        metavar="[LOOP=]N",
        help="How often a loop runs that does not say it itself, as in while0=50, or 50 for all of "
        "them; or the share of each branch, as in if0=0.9,0.1.  `tune kernels` lists their names.  "
        "[default: a loop once, branches alike]",
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
OracleLimit = Annotated[
    float | None,
    typer.Option(
        metavar="TIME",
        parser=seconds,
        help="Time for the oracle, as in 90s; what it does not reach in it is held against the "
        "default alone.  [default: 2m]",
        show_default=False,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Say nothing while it goes; the report is printed.")
]
Events = Annotated[
    bool,
    typer.Option(
        "--events", help="Tell each event as a line of JSON, on standard error, while it goes."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: units are in the names.")]

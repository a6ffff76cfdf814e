"""`tune run`: searches, measures, records."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hlotune.cli.devices import Device, asked_for
from hlotune.cli.each_variant import for_each
from hlotune.cli.loading import single_sizes
from hlotune.cli.options import (
    ArgumentTypes,
    Database,
    Devices,
    Dimensions,
    Events,
    Json,
    Numerics,
    Program,
    Quiet,
    Trips,
    seconds,
)
from hlotune.cli.run_program import Request, run_program
from hlotune.hlo.frontends.dump_folder import dumped_modules
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.schedules.targets.target import Target

EXAMPLE = "Example: tune run examples/mlp.py:model --budget 5m --database tuning.db"

Searcher = Literal["annealing", "descent", "evolution", "grid", "portfolio", "random"]
Model = Literal[
    "trees", "trees-time", "trees-rank", "treegru", "mlp", "ensemble", "roofline", "random"
]  # fmt: skip

MOST_SEED = 2**63 - 1
"""What a database can keep."""


Budget = Annotated[
    float | None,
    typer.Option(
        metavar="TIME",
        parser=seconds,
        help="Time for all of the command, its comparisons and checks too, as in 90s, 5m, 1h.  "
        "[default: 5m]",
        show_default=False,
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Trials for each kernel, in place of a budget.", show_default=False
    ),
]
First = Annotated[
    bool,
    typer.Option(
        "--first",
        help="No search: the first candidates of all kernels, verified and compared.",
    ),
]
ModelFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A model of `tune model train`, in place of the one that comes with hlotune.",
        show_default=False,
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, max=MOST_SEED, help="Seed of all random choices.")
]


def run(
    program: Program,
    budget: Budget = None,
    trials: Trials = None,
    database: Database = None,
    searcher: Annotated[Searcher, typer.Option(help="How candidates are chosen.")] = "annealing",
    model: Annotated[Model, typer.Option(help="What ranks candidates before they run.")] = "trees",
    model_file: ModelFile = None,
    first: First = False,
    seed: Seed = 0,
    numerics: Numerics = "standard",
    target: Device = None,
    devices: Devices = 1,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    trips: Trips = None,
    quiet: Quiet = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Searches for faster schedules and records every trial.

    PROGRAM may also be a folder that XLA has dumped its modules into: those that take most of the
    time are tuned, one after another.  So are the variants of several sizes of a dimension, each
    in an equal part of the budget; kernels that are the same in several have their records in
    common.
    """
    request = Request(
        program=program, budget_s=budget, trials=trials, database=database_path(database),
        says_database=database is None and not (quiet or json),
        searcher=searcher, model=model, model_file=model_file, first=first, seed=seed,
        numerics=numerics,
        target=check(budget, trials, target, first=first, devices=devices, model_file=model_file),
        devices=devices,
        types=arg or (), sizes=dim or (), loops=trips or (), quiet=quiet, events=events, json=json,
    )  # fmt: skip
    if modules := dumped_modules(Path(program)):
        from hlotune.cli.run_folder import run_modules

        require_alone(program, {"--arg": arg, "--dim": dim})
        run_modules(modules, request.time_limit_s, partial(run_module, request))
    elif len(variants := single_sizes(request.sizes)) > 1:
        for_each(variants, partial(run_variant, request, len(variants)))
    else:
        run_program(request)


def require_alone(folder: str, options: Mapping[str, Sequence[str] | None]) -> None:
    """Raises typer.BadParameter where a folder of modules, which have their types in them, comes
    with options that say types or sizes.
    """
    if given := [name for name, values in options.items() if values]:
        raise typer.BadParameter(
            f"expected the folder {folder} alone, whose modules have the types of their arguments "
            f"in them, got {' and '.join(given)} too; leave {'it' if len(given) == 1 else 'them'} "
            "out"
        )


def run_variant(request: Request, count: int, *, dim: list[str]) -> None:
    """Tunes the program for these sizes as the request says, with its part of the budget."""
    limit_s = request.time_limit_s
    part_s = None if limit_s is None else limit_s / count
    run_program(replace(request, sizes=dim, budget_s=part_s, whole_s=limit_s))


def run_module(request: Request, file: str, budget_s: float | None) -> None:
    """Tunes one module of a folder as the request says, with its part of the budget."""
    whole_s = request.time_limit_s
    one = replace(request, program=file, budget_s=budget_s, whole_s=whole_s, is_module=True)
    run_program(one)


def check(
    budget_s: float | None,
    trials: int | None,
    target: str | None,
    *,
    first: bool = False,
    devices: int = 1,
    model_file: Path | None = None,
) -> "Target | None":
    """The target that is asked for; refuses what makes no sense before anything is loaded."""
    if first and (budget_s is not None or trials is not None):
        given = "--budget" if trials is None else "--trials"
        raise typer.BadParameter(f"expected --first alone, got {given} too; leave one out")
    if first and devices > 1:
        raise typer.BadParameter("expected --first on one device, got --devices too; leave one out")
    if first and model_file is not None:
        raise typer.BadParameter(
            "expected --first alone, which asks no model, got --model-file too; leave one out"
        )
    if budget_s is not None and trials is not None:
        raise typer.BadParameter("expected --budget or --trials, got both; leave one out")
    return asked_for(target)

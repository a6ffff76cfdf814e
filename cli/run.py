"""`tune run`: searches, measures, records."""

import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hlotune.cli.loading import load_program
from hlotune.cli.options import (
    ArgumentTypes,
    Database,
    Dimensions,
    Events,
    Json,
    Numerics,
    Program,
    Quiet,
    seconds,
)
from hlotune.cli.options import Trips as LoopTrips
from hlotune.cli.printing import print_notes, say
from hlotune.hlo.frontends.dump_folder import dumped_modules
from hlotune.measure.machine.suspend_clock import beating
from hlotune.measure.workers.early_start import workers_ahead
from hlotune.schedules.errors import NoRecord, WrongResult
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.schedules.targets.target import Target
    from hlotune.search.result import TuneResult

EXAMPLE = "Example: tune run examples/mlp.py:model --budget 5m --database tuning.db"

Searcher = Literal["annealing", "descent", "evolution", "grid", "portfolio", "random"]
Model = Literal[
    "trees", "trees-time", "trees-rank", "treegru", "mlp", "ensemble", "roofline", "random"
]  # fmt: skip

INTERRUPTED = 130
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
    typer.Option(min=1, help="Trials for each kernel, in place of a budget.", show_default=False),
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
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Seed of all random choices.")]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FINGERPRINT",
        help="A device of this machine by name (cuda:h200, ...); or the fingerprint that this "
        "machine must have (tune targets).  [default: this machine's CPU]",
        show_default=False,
    ),
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
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    trips: LoopTrips = None,
    quiet: Quiet = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Searches for faster schedules and records every trial.

    PROGRAM may also be a folder that XLA has dumped its modules into: those that take most of the
    time are tuned, one after another.
    """
    device = check(budget, trials, target, first=first)
    path = database_path(database)
    if modules := dumped_modules(Path(program)):
        from hlotune.cli.run_folder import run_modules
        from hlotune.search.budget.budget import DEFAULT_BUDGET_S

        one = partial(
            run, trials=trials, database=database, searcher=searcher, model=model,
            model_file=model_file, first=first, seed=seed, numerics=numerics, target=target,
            trips=trips,
            quiet=quiet, events=events, json=json,
        )  # fmt: skip
        return run_modules(modules, None if trials else budget or DEFAULT_BUDGET_S, one)
    with beating() as pulse, workers_ahead():
        loaded = load_program(program, arg, dim, trips)
        print_notes(loaded.remarks, file=sys.stderr)
        # After loading: what is wrong with a program shall not wait for xgboost and torch.
        from hlotune.cli.progress import watching
        from hlotune.cli.report import print_report
        from hlotune.codegen.runtime.malloc_settings import keep_memory
        from hlotune.search.first import first as without_search
        from hlotune.search.tune import tune

        keep_memory()
        with watching(quiet=quiet or json, events=events) as progress:
            result = (
                without_search(
                    loaded,
                    database=path,
                    numerics=numerics,
                    progress=progress,
                    pulse=pulse,
                    target=device,
                )
                if first
                else tune(
                    loaded,
                    budget_s=budget,
                    trials=trials,
                    database=path,
                    searcher=searcher,
                    model=model,
                    model_file=model_file,
                    seed=seed,
                    numerics=numerics,
                    progress=progress,
                    pulse=pulse,
                    target=device,
                )
            )
    print_report(result.database, result.run, json=json)
    return end(result, budget, model_file, arg or (), dim or (), trips or ())


def check(
    budget_s: float | None, trials: int | None, target: str | None, *, first: bool = False
) -> "Target | None":
    """The target that is asked for; refuses what makes no sense before anything is loaded."""
    if first and (budget_s is not None or trials is not None):
        given = "--budget" if trials is None else "--trials"
        raise typer.BadParameter(f"expected --first alone, got {given} too; leave one out")
    if budget_s is not None and trials is not None:
        raise typer.BadParameter("expected --budget or --trials, got both; leave one out")
    return None if target is None else here(target)


def here(text: str) -> "Target":
    """The device of a name, or the CPU of a fingerprint, on this machine.

    Raises TargetError where it is not here.
    """
    from hlotune.schedules.targets.kinds import NAMED, named_target

    if text not in NAMED and ":" not in text:
        from hlotune.measure.machine.targets import require_host

        return require_host(text)
    device = named_target(text)
    leave_device_memory()
    from hlotune.measure.machine.devices import target_here

    return target_here(device)


def leave_device_memory() -> None:
    """Makes this process take a device's memory as it needs it: a worker measures on it, too."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def end(
    result: "TuneResult",
    budget_s: float | None,
    model_file: Path | None = None,
    types: Sequence[str] = (),
    sizes: Sequence[str] = (),
    loops: Sequence[str] = (),
) -> None:
    """After the report: what a caller has to know besides it, as an exit code and a line.

    `model_file`, `types` of arguments, `sizes` of dimensions and trips of `loops` are what the
    command was given.
    """
    from hlotune.search.budget.budget import DEFAULT_BUDGET_S

    if result.wrong_anyway:
        raise WrongResult(f"program {result.program_name}: {result.wrong_anyway}")
    if result.wrong:
        raise wrong_in_the_program(result)
    if result.interrupted:
        say(f"tune: to go on: {going_on(result, model_file, types, sizes, loops)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if result.needed_s is not None:
        raise NoRecord(
            f"program {result.program_name}: expected time for a batch of trials, found none in "
            f"the budget of {budget_s or DEFAULT_BUDGET_S:g} s; give --budget {result.needed_s}s"
        )
    if not result.kernels:
        why = "; ".join(reason for _, reason in result.skipped)
        raise NoRecord(
            f"program {result.program_name}: expected kernels to tune, found none"
            f"{f' ({why})' if why else ''}; XLA keeps all of it"
        )


def going_on(
    result: "TuneResult",
    model_file: Path | None,
    types: Sequence[str],
    sizes: Sequence[str] = (),
    loops: Sequence[str] = (),
) -> str:
    """The command that takes up an interrupted run, in this folder: what no database has of it is
    given again.
    """
    database = ["--database", str(result.database)]
    model = ["--model-file", str(model_file)] if model_file else []
    arguments = [word for kind in types for word in ("--arg", kind)]
    dims = [word for size in sizes for word in ("--dim", size)]
    trips = [word for loop in loops for word in ("--trips", loop)]
    return shlex.join(["tune", "resume", result.run, *database, *model, *arguments, *dims, *trips])


def wrong_in_the_program(result: "TuneResult") -> WrongResult:
    names, keys = ", ".join(result.wrong_sites), ", ".join(key[:8] for key in result.wrong)
    return WrongResult(
        f"program {result.program_name}: expected its results, got others with {names}; kernels "
        f"{keys} keep the default from now on, and the report counts without them",
        kernels=result.wrong,
        sites=result.wrong_sites,
    )

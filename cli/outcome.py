"""How `tune run` and `tune resume` end: an exit code, and a line after the report."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hlotune.cli.printing import say
from hlotune.schedules.errors import NoRecord, WrongResult

if TYPE_CHECKING:
    from hlotune.search.result import TuneResult

INTERRUPTED = 130
"""The exit code of an interrupted run."""


def end(
    result: "TuneResult",
    budget_s: float | None,
    model_file: Path | None = None,
    types: Sequence[str] = (),
    sizes: Sequence[str] = (),
    loops: Sequence[str] = (),
    devices: int = 1,
) -> None:
    """After the report: what a caller has to know besides it, as an exit code and a line.

    `model_file`, `types` of arguments, `sizes` of dimensions, trips of `loops` and the number of
    `devices` are what the command was given.
    """
    from hlotune.search.budget.budget import DEFAULT_BUDGET_S

    if result.wrong_anyway:
        raise WrongResult(f"program {result.program_name}: {result.wrong_anyway}")
    if result.wrong:
        raise wrong_in_the_program(result)
    if result.interrupted:
        command = going_on(result, model_file, types, sizes, loops, devices)
        say(f"tune: to go on: {command}", file=sys.stderr)
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
    devices: int = 1,
) -> str:
    """The command that takes up an interrupted run, in this folder: what no database has of it is
    given again.
    """
    database = ["--database", str(result.database)]
    model = ["--model-file", str(model_file)] if model_file else []
    arguments = [word for kind in types for word in ("--arg", kind)]
    dims = [word for size in sizes for word in ("--dim", size)]
    trips = [word for loop in loops for word in ("--trips", loop)]
    several = ["--devices", str(devices)] if devices > 1 else []
    given = [*database, *model, *several, *arguments, *dims, *trips]
    return shlex.join(["tune", "resume", result.run, *given])


def wrong_in_the_program(result: "TuneResult") -> WrongResult:
    names, keys = ", ".join(result.wrong_sites), ", ".join(key[:8] for key in result.wrong)
    return WrongResult(
        f"program {result.program_name}: expected its results, got others with {names}; kernels "
        f"{keys} keep the default from now on, and the report counts without them",
        kernels=result.wrong,
        sites=result.wrong_sites,
    )

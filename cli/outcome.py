"""How `tune run` and `tune resume` end: an exit code, and a line after the report."""

import shlex
import sys
from collections.abc import Sequence
from math import ceil
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
    *,
    whole_s: float | None = None,
    is_new: bool = True,
) -> None:
    """After the report: what a caller has to know besides it, as an exit code and a line.

    `model_file`, `types` of arguments, `sizes` of dimensions, trips of `loops` and the number of
    `devices` are what the command was given; `whole_s` is its budget, where `budget_s` is a part.
    Where the run is not `is_new`, but taken up again, the command has no option of a budget.
    """
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
            f"{too_short(budget_s, whole_s, result.needed_s, is_new=is_new)}"
            f"{first_instead(devices)}"
        )
    if not result.kernels:
        why = "; ".join(reason for _, reason in result.skipped)
        raise NoRecord(
            f"program {result.program_name}: expected kernels to tune, found none"
            f"{f' ({why})' if why else ''}; XLA keeps all of it"
        )


def first_instead(devices: int) -> str:
    """What needs no budget; candidates of several devices are searched alone."""
    return ", or --first for first candidates without a search" if devices == 1 else ""


def too_short(
    budget_s: float | None, whole_s: float | None, needed_s: int, *, is_new: bool = True
) -> str:
    """The budget that was too short, and one that is not, of all that have a part of it; a run that
    is taken up again keeps its own.
    """
    from hlotune.search.budget.limits import DEFAULT_BUDGET_S

    had_s = budget_s or DEFAULT_BUDGET_S
    give = "give" if is_new else "begin anew: tune run with"
    if whole_s is None or whole_s == had_s:
        return f"the budget of {had_s:g} s; {give} --budget {needed_s}s"
    enough_s = ceil(needed_s * whole_s / had_s)
    part = f"its part, {had_s:.3g} s, of the budget of {whole_s:g} s"
    return f"{part}; {give} --budget {enough_s}s"


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

"""`tune xla`: the options of XLA itself that make a whole program faster."""

import json as json_module
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hlotune.cli.devices import Device
from hlotune.cli.loading import load_program
from hlotune.cli.options import (
    ArgumentTypes,
    Database,
    Dimensions,
    Json,
    Numerics,
    Program,
    seconds,
)
from hlotune.cli.printing import counted, print_json, print_notes
from hlotune.cli.run import Searcher, Seed, check
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.measure.trial import Failure
    from hlotune.schedules.spaces.xla_options.table import Value
    from hlotune.search.xla_options import Both, Found

EXAMPLE = "Example: tune xla examples/mlp.py:model --trials 24 --database tuning.db"
TRIALS = 24
"""Trials without another limit."""
LIMIT_S = 120.0
"""The seconds that one trial may take with its process."""

Budget = Annotated[
    float | None,
    typer.Option(
        metavar="TIME",
        parser=seconds,
        help="Time for all trials and the last comparison, as in 90s, 5m, 1h, in place of trials.",
        show_default=False,
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help=f"Trials, a process each.  [default: {TRIALS}]", show_default=False
    ),
]


def xla(
    program: Program,
    budget: Budget = None,
    trials: Trials = None,
    database: Database = None,
    searcher: Annotated[Searcher, typer.Option(help="How options are chosen.")] = "annealing",
    seed: Seed = 0,
    numerics: Numerics = "standard",
    target: Device = None,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Searches XLA's own options for the whole program, and compares the best with XLA by itself.

    A trial is one combination of options, compiled and timed in a process of its own.  `tune run`
    and `tune bench` go on comparing with XLA without options; reports of the program show the best
    options in a line of their own.
    """
    device = check(budget, trials, target)
    from hlotune.measure.machine.devices import target_here
    from hlotune.measure.machine.targets import toolchain
    from hlotune.search.budget.limits import Limits
    from hlotune.search.xla_options import search_options
    from hlotune.tuning_logs.open_database import chosen

    limits = Limits(seconds=budget) if budget else Limits(trials=trials or TRIALS)
    loaded = load_program(program, arg, dim)
    about = {
        "program": program, "arg": arg or [], "dim": dim or [], "numerics": numerics,
        "target": target,
    }  # fmt: skip

    def ask(options: "Mapping[str, Value]", pairs: int) -> "Both | Failure":
        return asked({**about, "options": dict(options), "pairs": pairs})

    print_notes(loaded.remarks, file=sys.stderr)
    with chosen(path := database_path(database), create=True) as records:
        if database is None and not json:
            typer.echo(f"tune: records are in {path}", err=True)
        found = search_options(
            loaded, records, ask, limits=limits, searcher=searcher, seed=seed,
            target=target_here(device), toolchain=toolchain(), numerics=numerics,
            tell=partial(typer.echo, err=True),
        )  # fmt: skip
    show(found, json=json)


def asked(request: Mapping[str, Any], limit_s: float = LIMIT_S) -> "Both | Failure":
    """One trial in a process of its own."""
    from hlotune.measure.trial import Failure
    from hlotune.schedules.processes import python_module, python_path
    from hlotune.search.xla_options import Both

    try:
        done = subprocess.run(
            python_module("hlotune.cli.xla_trial"), input=json_module.dumps(request), text=True,
            capture_output=True, timeout=limit_s, check=False,
            env={**os.environ, "PYTHONPATH": python_path()},
        )  # fmt: skip
        said = json_module.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Failure("timeout", f"expected an answer within {limit_s:g} s, got none")
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1][:300]
        return Failure("crash", f"the process ended with {done.returncode} and said: {last}")
    if "kind" in said:
        return Failure(said["kind"], said["message"])
    return Both(tuple(said["default_s"]), tuple(said["tried_s"]))


def show(found: "Found", *, json: bool) -> None:
    from hlotune.tuning_logs.render import ratio_text, time_text

    final = found.final
    if json:
        paired = final.paired if final else None
        return print_json(
            {
                "run": found.run,
                "trials": found.trials,
                "failures": found.failures,
                "options": dict(found.options),
                "default_s": paired.default_time_s if paired else None,
                "best_s": paired.tuned_time_s if paired else None,
                "speedup": paired.speedup if paired else None,
                "speedup_low": paired.low if paired else None,
                "speedup_high": paired.high if paired else None,
                "won": bool(final and final.won),
            }
        )
    said = f"{counted(found.trials, 'trial')}, {found.failures} failed"
    if final is None:
        return typer.echo(f"run {found.run[:12]}: {said}; XLA stays as it is")
    paired = final.paired
    typer.echo(f"run {found.run[:12]}: {said}")
    typer.echo(f"best options: {json_module.dumps(dict(found.options), sort_keys=True)}")
    by_itself, with_these = time_text(paired.default_time_s), time_text(paired.tuned_time_s)
    return typer.echo(
        f"XLA by itself {by_itself}, with these {with_these}: "
        f"{ratio_text(paired.speedup, paired.low, paired.high)}"
    )

"""`tune show`: one recorded kernel: text, space, fastest schedule, and what that becomes."""

from typing import TYPE_CHECKING, Annotated

import typer

from hlotune.cli.options import Database, Json
from hlotune.cli.printing import print_json, print_table, say
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.cli.details import Shown, Timed

EXAMPLE = "Example: tune show 3fa1 --steps --database tuning.db"


def show(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="Label or first digits of the hash, as tune db ls and tune kernels print them.",
            show_default=False,
        ),
    ],
    steps: Annotated[bool, typer.Option("--steps", help="The nest after each step.")] = False,
    llvm: Annotated[bool, typer.Option("--llvm", help="The LLVM text.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="The assembly.")] = False,
    features: Annotated[
        bool, typer.Option("--features", help="What a cost model sees of it.")
    ] = False,
    database: Database = None,
    json: Json = False,
) -> None:
    """Shows a recorded kernel, its decision, and its fastest schedule of ours in detail."""
    from dataclasses import asdict

    from hlotune.cli.details import inspect
    from hlotune.tuning_logs.database import Database as TuningDatabase

    with TuningDatabase(database_path(database), read_only=True) as opened:
        shown = inspect(opened, kernel, steps=steps, llvm=llvm, asm=asm, features=features)
    return print_json(asdict(shown)) if json else print_shown(shown)


def print_shown(shown: "Shown") -> None:
    size = "none" if shown.space_size is None else f"{shown.space_size:.2g} schedules"
    say(f"kernel {shown.key}, family {shown.family[:8]}\n\n{shown.text.strip()}\n")
    say(f"space: {size}\ndecision: {shown.decision}")
    say(f"fastest: {timed_text(shown.fastest)}")
    if shown.fastest_of_ours != shown.fastest:
        say(f"fastest of ours: {timed_text(shown.fastest_of_ours)}")
    for step, nest in shown.steps or ():
        say(f"\n{step}\n{nest}")
    for text in (shown.llvm, shown.assembly):
        if text is not None:
            say(f"\n{text.strip()}")
    if shown.features is not None:
        print()
        print_table(["feature", ">value"], [(k, f"{v:.4g}") for k, v in shown.features.items()])


def timed_text(timed: "Timed | None") -> str:
    from hlotune.tuning_logs.render import time_text

    return "nothing ran here" if timed is None else f"{time_text(timed.time_s)}, {timed.schedule}"

"""`tune show`: one recorded kernel: its text, its best schedule, the loop nest step by step."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hlotune.cli.options import Database, Json, database_path
from hlotune.cli.printing import print_json

if TYPE_CHECKING:
    from hlotune.hlo.kernel import Kernel
    from hlotune.measure.trial import Trial
    from hlotune.schedules.schedule import Schedule
    from hlotune.tuning_logs.decisions import Decision

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
    database: Database = None,
    json: Json = False,
) -> None:
    """Shows a recorded kernel: its text, its decision, its schedule."""
    from hlotune.measure.targets import host_target, toolchain
    from hlotune.tuning_logs.database import Database as TuningDatabase
    from hlotune.tuning_logs.database import conditions
    from hlotune.tuning_logs.decisions import decision
    from hlotune.tuning_logs.listing import find_kernel
    from hlotune.tuning_logs.render import time_text

    under = conditions(host_target(), toolchain())
    with TuningDatabase(database_path(database), create=False) as opened:
        found = opened.kernel(find_kernel(opened, kernel))
        best = opened.best(found.key, numerics="fast", **under)
        decided = decision(opened, found.key, **under)
    nests = nest_by_step(found, best.candidate.schedule) if steps and best else []
    if json:
        return print_json(as_json(found, best, decided, nests))
    print(f"kernel {found.key}, family {found.family[:8]}\n\n{found.text.strip()}\n")
    print(f"decision: {decided.reason}")
    if best:
        print(f"fastest: {time_text(best.time_s)}, {best.candidate.schedule.to_json()}")
    for step, nest in nests:
        print(f"\n{step}\n{nest}")
    return None


def as_json(
    kernel: "Kernel", best: "Trial | None", decided: "Decision", nests: list[tuple[str, str]]
) -> dict[str, Any]:
    return {
        "key": kernel.key,
        "family": kernel.family,
        "text": kernel.text,
        "decision": decided.reason,
        "applied_schedule": decided.schedule.to_json(),
        "fastest": None
        if best is None
        else {"time_s": best.time_s, "schedule": best.candidate.schedule.to_json()},
        "steps": [{"step": step, "nest": nest} for step, nest in nests],
    }


def nest_by_step(kernel: "Kernel", schedule: "Schedule") -> list[tuple[str, str]]:
    """(step, the nest after it), the first before any step; empty where XLA keeps the kernel."""
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.to_compute import compute_of
    from hlotune.measure.targets import host_target
    from hlotune.schedules.nest import initial
    from hlotune.schedules.schedule import XLA

    if schedule.algorithm == XLA:
        return []
    nest = initial(compute_of(graph_of(kernel)), host_target())
    nests = [("before any step", str(nest))]
    for step in schedule.steps:
        nest = step.apply(nest)
        nests.append((str(step), str(nest)))
    return nests

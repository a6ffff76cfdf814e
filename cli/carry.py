"""`tune export-candidates`, `tune measure`: a search whose device is on another machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hlotune.cli.devices import leave_device
from hlotune.cli.loading import load_program, source_files
from hlotune.cli.options import (
    ArgumentTypes,
    Devices,
    Dimensions,
    Numerics,
    Program,
    TargetName,
)
from hlotune.cli.outputs import require_place, writing
from hlotune.cli.printing import counted, say
from hlotune.schedules.errors import NoRecord

EXPORT_EXAMPLE = (
    "Example: tune export-candidates examples/mlp.py:model mlp.jsonl --target cuda:h200"
)
MEASURE_EXAMPLE = (
    "Example: tune measure mlp.jsonl --output measured.jsonl, then tune db import measured.jsonl"
)
Known = Annotated[
    Path | None,
    typer.Option(
        "--database",
        "--db",
        metavar="FILE",
        help="Tuning database: the search goes on from what it knows of the device.  "
        "[default: none]",
        show_default=False,
    ),
]


def export_candidates(
    program: Program,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines to write.")],
    target: TargetName,
    count: Annotated[int, typer.Option(metavar="N", min=1, help="Candidates of each kernel.")] = 32,
    database: Known = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of all random choices.")] = 0,
    numerics: Numerics = "standard",
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
) -> None:
    """Writes what to measure next on a device that is not here."""
    from contextlib import nullcontext

    from hlotune.schedules.targets.kinds import named_target

    device = named_target(target)
    require_place(file, *filter(None, [database]), *source_files(program))
    loaded = load_program(program, arg, dim)
    from hlotune.search.carrying import counted as number_of
    from hlotune.search.carrying import proposed, write_candidates
    from hlotune.tuning_logs.database import Database

    with Database(database, read_only=True) if database else nullcontext() as records:
        made, skipped = proposed(loaded, device, records, count=count, seed=seed, numerics=numerics)
    for skip in skipped:
        say(f"tune: {skip.label} stays with the default: {skip.reason}", file=sys.stderr)
    if not made:
        raise NoRecord(
            f"program {loaded.name}: expected kernels with new candidates for {target}, found none"
        )
    with writing(file):
        write_candidates(file, made)
    say(
        f"{counted(number_of(made), 'candidate')} of {counted(len(made), 'kernel')} in {file}; on "
        f"a machine with {device.title}: tune measure {file} --output measured.jsonl"
    )


def measure(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From tune export-candidates.")],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="JSON lines to write, for tune db import.")
    ],
    devices: Devices = 1,
) -> None:
    """Builds, verifies and times candidates on the device that is here.

    It needs neither xgboost nor torch nor a database.
    """
    from hlotune.deploy.candidates import here, measured, read_candidates, write_lines
    from hlotune.measure.machine.devices import devices_like
    from hlotune.measure.workers.builder import ProcessBuilder
    from hlotune.measure.workers.several_devices import SeveralDevices

    require_place(output, file)
    made = read_candidates(file)
    leave_device(made[0].target)
    target = here(made)
    numbers = devices_like(target, devices)
    with (
        ProcessBuilder(target) as builder,
        SeveralDevices(target, numbers, made[0].numerics, made[0].cache) as runner,
    ):
        records = measured(
            made, target, builder.build, runner, lambda text: say(text, file=sys.stderr), devices
        )
        number = write_lines(output, records)
    say(f"{counted(number, 'record')} in {output}: tune db import {output}")

"""`tune apply`: the tuned program as a file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hlotune.cli.bench import blaming, print_accuracy
from hlotune.cli.devices import Device, asked_for
from hlotune.cli.loading import load_programs, source_files
from hlotune.cli.options import (
    AnyJaxlib,
    ArgumentTypes,
    Database,
    Dimensions,
    Json,
    Numerics,
    OracleLimit,
    Program,
)
from hlotune.cli.outputs import require_place
from hlotune.cli.printing import counted, print_json, say, size
from hlotune.tuning_logs.default_path import database_path

if TYPE_CHECKING:
    from hlotune.deploy.accuracy import Accuracy
    from hlotune.deploy.apply import TunedFunction

EXAMPLE = "Example: tune apply examples/mlp.py:model -o mlp.hlotune --database tuning.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    file: str
    bytes: int
    program: str
    numerics: str
    target: str
    """Fingerprint of the machines that can load it."""
    sites: int
    """Replaced by kernels of ours."""
    kernels: tuple[str, ...]
    packed_bytes: int


Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False),
]


def apply(
    program: Program,
    output: Output,
    database: Database = None,
    numerics: Numerics = "standard",
    target: Device = None,
    any_jaxlib: AnyJaxlib = False,
    oracle_limit: OracleLimit = None,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Writes the tuned program, once it is checked, to a file for hlotune.load_artifact.

    The file holds machine code, which runs in the process that loads it: trust such a file as you
    trust a shared library.
    """
    from hlotune.cli.progress import telling
    from hlotune.deploy.apply import applied
    from hlotune.deploy.artifact import require_values, save_artifact
    from hlotune.deploy.bench import checked_whole
    from hlotune.deploy.input_sets import ORACLE_S

    path, device = database_path(database), asked_for(target)
    require_place(output, path, *source_files(program))
    programs = load_programs(program, arg, dim)
    for loaded in programs:
        require_values(loaded)
    with telling() as tell:
        variants = [
            applied(
                p, database=path, numerics=numerics, target=device, any_jaxlib=any_jaxlib, tell=tell
            )
            for p in programs
        ]
    require_kernels(variants, path)
    accuracy: list[Accuracy] = []
    for tuned in variants:
        with blaming(tuned, path):
            accuracy += checked_whole(tuned, oracle_limit_s=oracle_limit or ORACLE_S)
    written = described(variants, output, save_artifact(variants, output))
    if json:
        return print_json({**asdict(written), "accuracy": [a.to_json() for a in accuracy]})
    return print_written(written, accuracy)


def require_kernels(variants: "Sequence[TunedFunction]", path: Path) -> None:
    """Raises NoRecord where no variant has a kernel in the place of a default."""
    from hlotune.schedules.errors import NoRecord

    if not any(tuned.replacements for tuned in variants):
        first = variants[0]
        raise NoRecord(
            f"program {first.program.name}: expected kernels in {path} that are faster than the "
            f"default here, found none; {first.outdated or '`tune explain` says why'}"
        )


def described(variants: "Sequence[TunedFunction]", output: Path, count_bytes: int) -> Written:
    first = variants[0]
    return Written(
        file=str(output),
        bytes=count_bytes,
        program=first.program.name if len(variants) == 1 else f"{len(variants)} variants",
        numerics=first.numerics,
        target=first.target.fingerprint,
        sites=sum(len(tuned.sites) for tuned in variants),
        kernels=tuple(dict.fromkeys(s.kernel.key for tuned in variants for s in tuned.sites)),
        packed_bytes=sum(tuned.packed_bytes for tuned in variants),
    )


def print_written(written: Written, accuracy: "Sequence[Accuracy]") -> None:
    print_accuracy(accuracy)
    say(
        f"{written.file}: {size(written.bytes, 'B', 1024)}, {written.program} with "
        f"{counted(written.sites, 'site')} replaced by "
        f"{counted(len(written.kernels), 'kernel')} and "
        f"{size(written.packed_bytes, 'B', 1024)} of packed constants, for machines with the "
        f"fingerprint {written.target}"
    )

"""`tune export`: the program itself in another form."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hlotune.cli.loading import load_program, source_files
from hlotune.cli.options import ArgumentTypes, Dimensions, Json, Program
from hlotune.cli.outputs import require_place, writing
from hlotune.cli.printing import counted, print_json, print_notes, say, size
from hlotune.schedules.errors import ProgramError

if TYPE_CHECKING:
    from hlotune.deploy.exported import Exported

EXAMPLE = "Example: tune export --onnx examples/mlp.py:model -o mlp.onnx"


def export(
    program: Program,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False),
    ],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="As an ONNX model, which other accelerators take.")
    ] = False,
    arg: ArgumentTypes = None,
    dim: Dimensions = None,
    json: Json = False,
) -> None:
    """Writes the program, as it is without tuned kernels, in a form that others take.

    Where ONNX Runtime is installed, it runs what was written on the example arguments, and on
    random ones where a call takes less than a second and no weights lie beside its module; the
    results are held against the reference.
    """
    from hlotune.deploy.exported import exported

    if not onnx:
        raise ProgramError("expected the form to write, got none; name it: --onnx")
    require_place(output, *source_files(program))
    loaded = load_program(program, arg, dim)
    with writing(output):
        done = exported(loaded, output)
    if json:
        return print_json(described(done, output))
    print_notes(loaded.remarks)
    say(
        f"{output}: {size(done.bytes, 'B', 1024)}, {loaded.name} as {counted(done.nodes, 'node')} "
        f"of ONNX, opset {done.opset}"
    )
    return say(checked_text(done))


def described(done: "Exported", output: Path) -> dict[str, Any]:
    return {
        "file": str(output),
        "bytes": done.bytes,
        "nodes": done.nodes,
        "opset": done.opset,
        "inputs": list(done.inputs),
        "checked_by": done.checked_by,
        "not_checked": done.not_checked,
        "accuracy": [a.to_json() for a in done.accuracy],
    }


def checked_text(done: "Exported") -> str:
    if done.not_checked:
        return f"its results were not checked: {done.not_checked}"
    most = max(a.tuned_error for a in done.accuracy)
    theirs = max((a.default_error or 0.0 for a in done.accuracy), default=0.0)
    inputs = " and on ".join(dict.fromkeys(a.inputs for a in done.accuracy))
    return (
        f"{done.checked_by} gives the right results of it, on {inputs} arguments: relative error "
        f"{most:.1e}, of XLA {theirs:.1e}"
    )

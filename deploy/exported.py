"""Exports a program as an ONNX model, and checks the model with a runtime."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hlotune.deploy.accuracy import Accuracy, Judge
from hlotune.deploy.input_sets import ORACLE_S, input_sets
from hlotune.deploy.rivals.contest import arrays_of, verdicts, written
from hlotune.deploy.rivals.process import RivalError, RivalProcess
from hlotune.deploy.rivals.runtimes import RUNTIMES, Runtime
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.targets.cpu import HOST_PLATFORM


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    bytes: int
    """The size of all files of the model together, in bytes."""
    nodes: int
    opset: int
    inputs: tuple[str, ...]
    """Names of the model's inputs, in the order of the program's flat arguments."""
    checked_by: str | None = None
    """The name and version of the runtime that gave the right results; None if none ran."""
    not_checked: str | None = None
    """The reason why no runtime checked the model; None if one did."""
    accuracy: tuple[Accuracy, ...] = ()


def exported(
    program: Program, path: Path, *, runtime: Runtime = RUNTIMES["onnxruntime"]
) -> Exported:
    """Writes the ONNX model of a program; constants above a gigabyte go to `<path>.data`.

    Where the runtime is installed, it runs the model on the inputs of `input_sets`, in a process of
    its own, before the file takes its place.

    Raises:
        ProgramError: the package onnx is absent, or an operation cannot be written to ONNX.
        WrongResult: the runtime gives other results than the program; nothing is written.
    """
    with TemporaryDirectory(prefix=".hlotune-", dir=path.resolve().parent) as folder:
        model = Path(folder) / path.name
        written(program, model)
        done = _described(model)
        checked = _checked(program, model, runtime)
        for file in (f"{path.name}.data", path.name):
            if (made := Path(folder) / file).exists():
                os.replace(made, path.parent / file)
    if isinstance(checked, str):
        return replace(done, not_checked=checked)
    version, accuracy = checked
    return replace(done, checked_by=f"{runtime.name} {version}", accuracy=tuple(accuracy))


def _described(model: Path) -> Exported:
    import onnx

    read = onnx.load_model(str(model), load_external_data=False)
    return Exported(
        bytes=sum(file.stat().st_size for file in model.parent.iterdir()),
        nodes=len(read.graph.node),
        opset=read.opset_import[0].version,
        inputs=tuple(x.name for x in read.graph.input),
    )


def _checked(
    program: Program, model: Path, runtime: Runtime
) -> tuple[str, Sequence[Accuracy]] | str:
    """The runtime's version and the oracle's verdicts on its results, or why it did not run."""
    if runtime.absent:
        return f"{runtime.name} is {runtime.absent}"
    default = jitted(program, platform=HOST_PLATFORM)
    found, version = list[Accuracy](), ""
    sets = input_sets(program, default, HOST_PLATFORM).sets
    for inputs in sets:
        try:
            arrays, threads = arrays_of(program, inputs.values), os.cpu_count() or 1
            with RivalProcess(runtime, model, arrays, threads) as process:
                version, results = process.version, process.results
        except RivalError as error:
            return str(error)
        judge = Judge.of(program, default, inputs, ORACLE_S / len(sets))
        found += verdicts(judge, results)
        if wrong := next((a for a in found if a.wrong), None):
            raise WrongResult(
                f"expected result {wrong.result} of {program.name} from {runtime.name} as the "
                f"reference has it, got {wrong.wrong} on {wrong.inputs} inputs; the model was not "
                "written: report this, with the program"
            )
    return version, found

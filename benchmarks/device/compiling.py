"""A child that compiles candidates while others are measured."""

import contextlib
import pickle
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from benchmarks.device.cases import from_json
from benchmarks.device.child import serve
from hlotune.codegen.pallas.assembler import assembler, dumping, register_use
from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.lowering import lowered
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.targets.gpu import gpu_target_of


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Writes the executable to the file that the question names."""
    if question["do"] == "start":
        return {"devices": len(jax.devices())}
    kernel = from_json(question["kernel"])
    start = time.perf_counter()
    function = build(kernel, question["sketch"], question["knobs"], question["interpret"])
    low = lowered(function, operands(kernel))
    ptxas = None if question["interpret"] else assembler()
    with tempfile.TemporaryDirectory() as folder:
        compiled = _compiled(low, Path(folder) if ptxas else None)
        compile_s = time.perf_counter() - start
        use = _register_use(Path(folder), ptxas) if ptxas else {}
    Path(question["file"]).write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    return {"compile_s": compile_s, **use}


def _compiled(low: Any, folder: Path | None) -> Any:
    """The executable; the text of its kernels is in the folder where this XLA writes it."""
    if folder is not None:
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # of an XLA without these options
            return low.compile(compiler_options=dumping(folder))
    return low.compile()


def _register_use(folder: Path, ptxas: Path) -> dict[str, int]:
    """Registers and spilled bytes of the kernel that takes most, where its text was written."""
    try:
        found = register_use(folder, gpu_target_of(jax.devices()[0].device_kind), ptxas)
    except (HlotuneError, OSError, subprocess.SubprocessError):  # no figures, and no harm
        return {}
    if not found:
        return {}
    most = max(found, key=lambda use: (use.spilled_bytes, use.registers))
    return {"registers": most.registers, "spilled_bytes": most.spilled_bytes}


def loaded(file: str) -> Any:
    """The function of a file that a compiling child wrote."""
    payload, in_tree, out_tree = pickle.loads(Path(file).read_bytes())
    return serialize_executable.deserialize_and_load(payload, in_tree, out_tree)


if __name__ == "__main__":
    serve(answer)

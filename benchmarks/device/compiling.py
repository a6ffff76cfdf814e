"""A child that compiles candidates while others are measured."""

import pickle
import time
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from benchmarks.device.cases import from_json
from benchmarks.device.child import serve
from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.lowering import lowered


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Writes the executable to the file that the question names."""
    if question["do"] == "start":
        return {"devices": len(jax.devices())}
    kernel = from_json(question["kernel"])
    start = time.perf_counter()
    function = build(kernel, question["sketch"], question["knobs"], question["interpret"])
    compiled = lowered(function, operands(kernel)).compile()
    Path(question["file"]).write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    return {"compile_s": time.perf_counter() - start}


def loaded(file: str) -> Any:
    """The function of a file that a compiling child wrote."""
    payload, in_tree, out_tree = pickle.loads(Path(file).read_bytes())
    return serialize_executable.deserialize_and_load(payload, in_tree, out_tree)


if __name__ == "__main__":
    serve(answer)

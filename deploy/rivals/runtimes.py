"""The runtimes: how each reads an ONNX model, and calls it.  They are imported where they run."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Call = Callable[[], Sequence[NDArray[Any]]]
"""A blocking call on the arrays that it was prepared with."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """One other runtime; `prepare` takes the path of a model, arrays by name, and threads."""

    name: str
    package: str
    """What is imported, and what pip installs."""
    prepare: Callable[[str, dict[str, NDArray[Any]], int], Call]

    @property
    def absent(self) -> str | None:
        """How to install it, where it is not."""
        if importlib.util.find_spec(self.package) is not None:
            return None
        return f"not installed: pip install {self.package}"


def _onnx_runtime(path: str, arrays: dict[str, NDArray[Any]], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {x.name: arrays[x.name] for x in session.get_inputs()}
    run: Call = partial(session.run, None, given)
    return run


def _open_vino(path: str, arrays: dict[str, NDArray[Any]], threads: int) -> Call:
    """In f32 as the others: where the processor has bf16, it would round to that.

    Raises TypeError for arguments or results in bf16: NumPy has no such type, and OpenVINO hands
    their bits over as another.
    """
    import openvino

    core = openvino.Core()
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(path), "CPU", settings)
    for port in (*compiled.inputs, *compiled.outputs):
        if port.element_type == openvino.Type.bf16:
            raise TypeError(f"expected element types that NumPy has, got bf16 for {port.any_name}")
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        request.set_tensor(port, openvino.Tensor(np.array(arrays[port.any_name], order="C")))

    def call() -> list[NDArray[Any]]:
        request.infer()
        return [request.get_tensor(port).data for port in compiled.outputs]

    return call


RUNTIMES: dict[str, Runtime] = {
    runtime.package: runtime
    for runtime in (
        Runtime("ONNX Runtime", "onnxruntime", _onnx_runtime),
        Runtime("OpenVINO", "openvino", _open_vino),
    )
}

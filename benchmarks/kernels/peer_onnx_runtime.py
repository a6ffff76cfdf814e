"""ONNX Runtime's side: the model of a case, with bound inputs and outputs."""

import os
from collections.abc import Sequence

import numpy as np
import onnxruntime

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.peers.worker import Unsupported


class OnnxRuntime:
    version = onnxruntime.__version__

    def __init__(self, threads: int) -> None:
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 3
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        if not model or "bf16" in types:
            raise Unsupported("the case is not written for ONNX")
        session = onnxruntime.InferenceSession(
            model, self.options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        given = {f"x{k}": x for k, x in enumerate(inputs)}
        values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in given.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        first = [np.array(x) for x in session.run(None, given)]
        outputs = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(x)) for x in first]
        for output, value in zip(session.get_outputs(), outputs, strict=True):
            binding.bind_ortvalue_output(output.name, value)
        return Prepared(lambda: session.run_with_iobinding(binding), lambda: first)


if __name__ == "__main__":
    serve(OnnxRuntime(int(os.environ["PEER_THREADS"])))

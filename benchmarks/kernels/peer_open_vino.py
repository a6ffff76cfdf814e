"""OpenVINO's side: the model of a case, compiled for least latency in f32, with bound tensors."""

import os
from collections.abc import Sequence

import numpy as np
import openvino as ov

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.peers.worker import Unsupported


class OpenVino:
    version = ov.__version__.partition("-")[0]

    def __init__(self, threads: int) -> None:
        self.core = ov.Core()
        self.settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": ov.Type.f32,
        }

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        if not model or "bf16" in types:
            raise Unsupported("the case is not written for ONNX")
        read = self.core.read_model(model)
        request = self.core.compile_model(read, "CPU", self.settings).create_infer_request()
        for place, array in enumerate(inputs):
            request.set_input_tensor(place, ov.Tensor(np.ascontiguousarray(array)))
        for place in range(len(read.outputs)):
            found = request.get_output_tensor(place)
            request.set_output_tensor(place, ov.Tensor(found.element_type, found.shape))

        def call() -> object:
            return request.infer(share_outputs=True)  # else it copies the outputs once more

        call()
        first = [np.array(request.get_output_tensor(k).data) for k in range(len(read.outputs))]
        return Prepared(call, lambda: first)


if __name__ == "__main__":
    serve(OpenVino(int(os.environ["PEER_THREADS"])))

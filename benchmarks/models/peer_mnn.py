"""MNN's side: the network that its converter has made of ONNX; precision `high` keeps it in f32."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import MNN
import numpy as np

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.models.files import MNN as FILE


class Mnn:
    version = version("MNN")

    def __init__(self, threads: int) -> None:
        self.settings = {
            "backend": "CPU", "numThread": threads, "precision": "high", "power": "high",
        }  # fmt: skip

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        network = MNN.Interpreter(str(Path(model) / FILE))
        session = network.createSession(self.settings)
        network.getSessionInput(session).copyFrom(_tensor(inputs[0]))
        network.runSession(session)
        made = network.getSessionOutput(session)
        here = _tensor(np.zeros(made.getShape(), np.float32))
        made.copyToHostTensor(here)
        first = [np.array(here.getNumpyData()).reshape(made.getShape())]
        return Prepared(lambda: network.runSession(session), lambda: first)


def _tensor(array: Array) -> "MNN.Tensor":
    """A tensor in the order of axes that PyTorch has."""
    given = np.ascontiguousarray(array)
    return MNN.Tensor(
        given.shape, MNN.Halide_Type_Float, given, MNN.Tensor_DimensionType_Caffe
    )  # fmt: skip


if __name__ == "__main__":
    serve(Mnn(int(os.environ["PEER_THREADS"])))

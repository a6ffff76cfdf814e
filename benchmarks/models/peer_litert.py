"""LiteRT's side: the network that its converter has made of a module, on XNNPACK's kernels."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.models.files import TFLITE


class LiteRt:
    version = version("ai-edge-litert")

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        network = Interpreter(str(Path(model) / TFLITE), num_threads=self.threads)
        network.allocate_tensors()
        (given, *_), (made, *_) = network.get_input_details(), network.get_output_details()
        network.set_tensor(given["index"], inputs[0])
        network.invoke()
        first = [np.array(network.get_tensor(made["index"]))]
        return Prepared(network.invoke, lambda: first)


if __name__ == "__main__":
    serve(LiteRt(int(os.environ["PEER_THREADS"])))

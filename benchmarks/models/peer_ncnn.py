"""ncnn's side: the network that pnnx has converted, in f32, with its own settings of Winograd.

Settings that round to 16 bits or to bytes are on where a build has them, and off here; they count
only before a network is loaded.
"""

import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import ncnn
import numpy as np

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.models.files import NCNN, NCNN_WEIGHTS

NARROW = (
    "use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_packed",
    "use_bf16_storage", "use_int8_packed", "use_int8_storage", "use_int8_arithmetic",
    "use_int8_inference", "use_vulkan_compute",
)  # fmt: skip
WITHOUT_BATCH = {3: (0,), 4: (0,)}
"""What to take of an input by its rank: a `Mat` has no axis of one image or one text."""


class Ncnn:
    version = version("ncnn")

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        net = ncnn.Net()
        net.opt.num_threads, net.opt.lightmode = self.threads, True
        for name in NARROW:
            if hasattr(net.opt, name):
                setattr(net.opt, name, False)
        for load, file in ((net.load_param, NCNN), (net.load_model, NCNN_WEIGHTS)):
            if load(str(Path(model) / file)) != 0:
                raise ValueError(f"ncnn does not read {file}")
        x = inputs[0][WITHOUT_BATCH.get(inputs[0].ndim, ())]
        given = ncnn.Mat(np.ascontiguousarray(x)).clone()
        (source, *_), (sink, *_) = net.input_names(), net.output_names()

        def call() -> object:
            with net.create_extractor() as extractor:
                extractor.input(source, given)
                return extractor.extract(sink)[1]

        first = [np.array(call())]
        return Prepared(call, lambda: first)


if __name__ == "__main__":
    serve(Ncnn(int(os.environ["PEER_THREADS"])))

"""PyTorch's side, and zentorch's: the network as a module, compiled with constant weights.

    python -m benchmarks.models.peer_torch [zentorch]

Inductor searches over kernels and packs the frozen weights; images are channels last in memory.  It
begins with an empty cache: a choice that was timed on a busy machine would stay.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch._inductor import config

from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.models.files import WEIGHTS
from benchmarks.models.torch_networks import network

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "inductor"


class Compiled:
    """A network compiled by a backend of `torch.compile`; its model is a folder with weights."""

    def __init__(self, backend: str) -> None:
        self.backend, self.version = backend, str(torch.__version__)
        if backend == "zentorch":
            import zentorch

            self.version += f" zentorch {zentorch.__version__}"

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        torch._dynamo.reset()
        module, x = network(case, Path(model) / WEIGHTS), torch.from_numpy(inputs[0])
        if x.ndim == 4:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            x = x.contiguous(memory_format=torch.channels_last)
        config.freezing = True
        config.max_autotune = self.backend == "inductor"
        function = torch.compile(module, backend=self.backend)
        first = [function(x).contiguous().numpy().copy()]
        return Prepared(lambda: function(x), lambda: first)


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["PEER_THREADS"]))
    cache = Path("build/models").absolute() / f"inductor-{BACKEND}"
    shutil.rmtree(cache, ignore_errors=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    with torch.no_grad():
        serve(Compiled(BACKEND))

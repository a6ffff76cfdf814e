"""PyTorch's side: eager, and compiled by inductor with its defaults."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.kernels.cases import CASES
from benchmarks.kernels.peer import Array, Prepared, serve
from benchmarks.peers.worker import Unsupported

WIDE = {"bf16": torch.bfloat16, "f16": torch.float16}


class PyTorch:
    version = torch.__version__

    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        found = CASES[case]
        if found.torch is None:
            raise Unsupported("the case is not written for PyTorch")
        function: Callable[..., Any] = partial(found.torch, torch)
        if form == "compiled":
            torch._dynamo.reset()
            function = torch.compile(function)
        given = [_tensor(x, t) for x, t in zip(inputs, types, strict=True)]
        state, rest = given[: found.donated], given[found.donated :]

        def call() -> list[torch.Tensor]:
            made = _flat(function(*state, *rest))
            state[:] = made[: found.donated]
            return made

        first = [_array(x) for x in call()]
        return Prepared(call, lambda: first)


def _flat(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def _tensor(array: Array, dtype: str) -> torch.Tensor:
    found = torch.from_numpy(array)
    return found.to(WIDE[dtype]) if dtype in WIDE else found


def _array(tensor: torch.Tensor) -> Array:
    found = tensor.detach()
    wide = found.float() if found.dtype == torch.bfloat16 else found
    return wide.contiguous().numpy().copy()


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["PEER_THREADS"]))
    serve(PyTorch())

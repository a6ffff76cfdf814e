"""PyTorch's side: eager, in channels-last memory where the case has that, and compiled.

    eager        kernels of oneDNN and MKL as they come
    linear       the same for a product, its weights transposed at load, as `nn.Linear` keeps them
    arguments    inductor's defaults
    constants    inductor with frozen weights, which it packs, and its own search over kernels

Its folder for compiled code is told by TORCHINDUCTOR_CACHE_DIR.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._inductor import config

from benchmarks.operations import Array, Convolution, Operation
from benchmarks.peers.plain import Plain, plain, restored
from benchmarks.peers.worker import Prepared, Unsupported, serve

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}

Tensors = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Frozen(torch.nn.Module):
    """The operation with its weights as a parameter."""

    def __init__(self, function: Tensors, weights: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.weights, x)


class PyTorch:
    version = torch.__version__

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        function, (w, y) = _called(operation, weights, x)
        if form == "linear":
            function, w, form = _linear(operation), w.mT.contiguous(), "eager"
        call = _formed(form, function, w, y)
        return Prepared(call, lambda: _result(operation, call()))


def _called(
    operation: Operation, weights: Array, x: Array
) -> tuple[Tensors, tuple[torch.Tensor, torch.Tensor]]:
    dtype = TYPES[operation.element]
    if not isinstance(operation, Convolution):
        return _product(operation), (_tensor(weights, dtype), _tensor(x, dtype))
    if operation.element == "int8":
        raise Unsupported("no convolution of bytes outside of quantised networks")
    made = plain(operation, weights, x)
    pair = (_laid(made, a, dtype) for a in (made.weights, made.x))
    w, y = pair
    return _convolution(made), (w, y)


def _tensor(array: Array, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(dtype)


def _laid(made: Plain, array: Array, dtype: torch.dtype) -> torch.Tensor:
    tensor = _tensor(array, dtype)
    if made.operation.channels == "last" and made.rank in FORMATS:
        return tensor.contiguous(memory_format=FORMATS[made.rank])
    return tensor


def _product(operation: Operation) -> Tensors:
    if operation.element != "int8":
        return lambda weights, x: x @ weights
    if len(operation.shapes[0]) > 2:
        raise Unsupported("no batched product of bytes")
    return lambda weights, x: torch._int_mm(x, weights)


def _linear(operation: Operation) -> Tensors:
    if isinstance(operation, Convolution) or operation.element == "int8":
        raise Unsupported("only products of floating numbers are linear layers")
    return lambda weights, x: torch.nn.functional.linear(x, weights)


def _convolution(made: Plain) -> Tensors:
    groups = made.operation.groups
    steps: list[Any] = [list(made.strides), list(made.padding), list(made.dilations)]
    if made.kind == "weights":
        shape = _weights_shape(made.operation)
        return lambda of_result, image: torch.ops.aten.convolution_backward(
            of_result, image, of_result.new_empty(shape), None, *steps,
            False, [0] * made.rank, groups, [False, True, False],
        )[1]  # fmt: skip
    is_transposed = made.kind == "transposed"
    missing = list(made.missing) if is_transposed else [0] * made.rank
    return lambda weights, x: torch.ops.aten.convolution(
        x, weights, None, *steps, is_transposed, missing, groups
    )


def _weights_shape(operation: Convolution) -> tuple[int, ...]:
    taps = (operation.window,) * len(operation.size)
    return (operation.outputs, operation.inputs // operation.groups, *taps)


def _formed(
    form: str, function: Tensors, weights: torch.Tensor, x: torch.Tensor
) -> Callable[[], torch.Tensor]:
    if form == "eager":
        return lambda: function(weights, x)
    torch._dynamo.reset()
    config.freezing = config.max_autotune = form == "constants"
    if form == "constants":
        frozen = torch.compile(Frozen(function, weights).eval())
        frozen(x)  # compiled at the first call, under the settings of now
        return lambda: frozen(x)
    compiled = torch.compile(function)
    compiled(weights, x)
    return lambda: compiled(weights, x)


def _result(operation: Operation, found: torch.Tensor) -> Array:
    wide = found.float() if found.dtype == torch.bfloat16 else found
    array: Array = wide.contiguous().numpy()
    return restored(operation, array) if isinstance(operation, Convolution) else array


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["PEER_THREADS"]))
    with torch.inference_mode():
        serve(PyTorch())

"""OpenVINO's side: one operation a model, compiled for least latency, with bound tensors.

Its operations have channels before the image.  For a case that has them last, the model transposes
on both sides: the compiler takes such transposes into its choice of layouts.  In the forms named
`_nchw` it is given such a case with channels first, and transposes nothing.
"""

import os
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from benchmarks.operations import Array, Convolution, Operation, Shape
from benchmarks.peers.plain import Plain, plain, restored
from benchmarks.peers.worker import Prepared, Unsupported, serve

TYPES = {"f32": ov.Type.f32, "bf16": ov.Type.bf16}


class OpenVino:
    version = ov.__version__.partition("-")[0]

    def __init__(self, threads: int) -> None:
        self.core = ov.Core()
        self.settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        if operation.element not in TYPES:
            raise Unsupported(f"no product of {operation.element} outside of quantised networks")
        weights_are, _, first = form.partition("_")
        if first and getattr(operation, "channels", "first") == "first":
            raise Unsupported("channels come first without that")
        graph = Graph(operation, weights_are == "constants", not first, weights, x)
        settings = {**self.settings, "INFERENCE_PRECISION_HINT": TYPES[operation.element]}
        request = self.core.compile_model(graph.model(), "CPU", settings).create_infer_request()
        for place, array in enumerate(graph.inputs):
            request.set_input_tensor(place, _tensor(array, TYPES[operation.element]))
        output = ov.Tensor(ov.Type.f32, request.get_output_tensor(0).shape)
        request.set_output_tensor(0, output)

        def call() -> object:
            return request.infer(share_outputs=True)  # else it copies the output once more

        return Prepared(call, lambda: graph.restored(output.data.copy()))


class Graph:
    """Nodes of one operation, and the arrays that its model takes."""

    def __init__(
        self, operation: Operation, is_frozen: bool, may_transpose: bool, weights: Array, x: Array
    ) -> None:
        self.operation, self.is_frozen = operation, is_frozen
        self.is_last = may_transpose and getattr(operation, "channels", "first") == "last"
        self.inputs: list[Array] = []
        self.parameters: list[Any] = []
        if isinstance(operation, Convolution):
            self.result = self._convolution(plain(operation, weights, x))
        else:
            w = self._operand(weights, is_weights=True)
            self.result = ops.matmul(self._operand(x), w, False, False)

    def model(self) -> Any:
        found = self.result
        if self.operation.element != "f32":
            found = ops.convert(found, "f32")
        return ov.Model([found], self.parameters)

    def restored(self, result: Array) -> Array:
        """Images come out in the operation's own order; the gradient of weights does not."""
        operation = self.operation
        if not isinstance(operation, Convolution):
            return result
        is_image = operation.direction != "weight_gradient"
        return result if is_image and self.is_last else restored(operation, result)

    def _operand(self, array: Array, *, is_weights: bool = False, order: Shape = ()) -> Any:
        """A constant or an input; as an input it has its axes in `order` and is transposed."""
        dtype = TYPES[self.operation.element]
        if is_weights and self.is_frozen:
            return ops.constant(array, dtype=dtype)
        given = np.ascontiguousarray(array.transpose(np.argsort(order)) if order else array)
        self.inputs.append(given)
        self.parameters.append(ops.parameter(list(given.shape), dtype))
        found = self.parameters[-1]
        return ops.transpose(found, ops.constant(list(order))) if order else found

    def _convolution(self, made: Plain) -> Any:
        into = (0, made.rank + 1, *range(1, made.rank + 1)) if self.is_last else ()
        x = self._operand(made.x, order=into)
        if made.kind == "weights":
            return self._weight_gradient(made, x, self._operand(made.weights, order=into))
        weights = self._operand(_grouped(made), is_weights=True)
        found = NODES[made.kind, made.operation.groups > 1](weights, x, made)
        if not self.is_last:
            return found
        return ops.transpose(found, ops.constant([0, *range(2, made.rank + 2), 1]))

    def _weight_gradient(self, made: Plain, x: Any, of_result: Any) -> Any:
        if made.operation.stride > 1 or made.operation.groups > 1:
            raise Unsupported("no gradient of the weights of a strided or grouped convolution")
        order = ops.constant([1, 0, *range(2, 2 + made.rank)])
        image, window = ops.transpose(x, order), ops.transpose(of_result, order)
        ones, padding = [1] * made.rank, list(made.padding)
        found = ops.convolution(image, window, list(made.dilations), padding, padding, ones)
        return ops.transpose(found, order)


def _grouped(made: Plain) -> Array:
    """(groups, outputs / groups, inputs / groups, *window) where there are groups."""
    groups, shape = made.operation.groups, made.weights.shape
    if groups == 1:
        return made.weights
    return made.weights.reshape(groups, shape[0] // groups, *shape[1:])


def _steps(made: Plain) -> tuple[list[int], list[int], list[int], list[int]]:
    padding = list(made.padding)
    return list(made.strides), padding, padding, list(made.dilations)


def _forward(weights: Any, x: Any, made: Plain) -> Any:
    return ops.convolution(x, weights, *_steps(made))


def _forward_grouped(weights: Any, x: Any, made: Plain) -> Any:
    return ops.group_convolution(x, weights, *_steps(made))


def _transposed(weights: Any, x: Any, made: Plain) -> Any:
    strides, begins, ends, dilations = _steps(made)
    return ops.convolution_backprop_data(
        x, weights, strides, pads_begin=begins, pads_end=ends, dilations=dilations,
        output_padding=list(made.missing),
    )  # fmt: skip


def _no_groups(weights: Any, x: Any, made: Plain) -> Any:
    raise Unsupported("no transposed convolution in groups here")


NODES = {
    ("convolution", False): _forward,
    ("convolution", True): _forward_grouped,
    ("transposed", False): _transposed,
    ("transposed", True): _no_groups,
}


def _tensor(array: Array, dtype: Any) -> Any:
    if dtype == ov.Type.f32:
        return ov.Tensor(array)
    bits = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    tensor = ov.Tensor(dtype, list(array.shape))
    tensor.data.view(np.uint16)[:] = bits  # NumPy has no bf16: a view of two bytes stands for it
    return tensor


if __name__ == "__main__":
    serve(OpenVino(int(os.environ["PEER_THREADS"])))

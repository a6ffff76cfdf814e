"""ONNX Runtime's side: one node a model, on its own CPU kernels, with bound inputs and outputs.

It has channels before the image only; its models take and give them so.
"""

import os
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.operations import Array, Convolution, Operation
from benchmarks.peers.plain import Plain, plain, restored
from benchmarks.peers.worker import Prepared, Unsupported, serve

OPSET, IR = 21, 10
TYPES = {"f32": TensorProto.FLOAT, "int8": TensorProto.INT8}
RESULTS = {"f32": TensorProto.FLOAT, "int8": TensorProto.INT32}
ORDERS = {"arguments": ("weights", "x"), "constants": ("x",)}


class OnnxRuntime:
    version = onnxruntime.__version__

    def __init__(self, threads: int) -> None:
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.log_severity_level = 3
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        if operation.element not in TYPES:
            raise Unsupported(f"no CPU kernels for {operation.element}")
        made = plain(operation, weights, x) if isinstance(operation, Convolution) else None
        arrays = {"weights": weights, "x": x}
        if made is not None:
            arrays = {"weights": made.weights, "x": made.x}
        nodes = _product(operation) if made is None else _convolution(made)
        model = _model(operation, nodes, arrays, ORDERS[form])
        return self._bound(operation, model, {n: arrays[n] for n in ORDERS[form]})

    def _bound(self, operation: Operation, model: bytes, inputs: dict[str, Array]) -> Prepared:
        session = onnxruntime.InferenceSession(
            model, self.options, providers=["CPUExecutionProvider"]
        )
        binding = session.io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a) for name, a in inputs.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        (first,) = session.run(None, inputs)
        output = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(first))
        binding.bind_ortvalue_output("y", output)

        def result() -> Array:
            found: Array = output.numpy()
            return restored(operation, found) if isinstance(operation, Convolution) else found

        return Prepared(lambda: session.run_with_iobinding(binding), result)


def _product(operation: Operation) -> list[Any]:
    kind = "MatMulInteger" if operation.element == "int8" else "MatMul"
    return [helper.make_node(kind, ["x", "weights"], ["y"])]


def _convolution(made: Plain) -> list[Any]:
    places = {
        "strides": made.strides,
        "pads": made.padding * 2,
        "dilations": made.dilations,
        "group": made.operation.groups,
    }
    if made.kind == "transposed":
        missing = {"output_padding": made.missing} if any(made.missing) else {}
        node = "ConvTranspose", ["x", "weights"], {**places, **missing}
    elif made.kind == "weights":
        return _weight_gradient(made)
    else:
        integer = made.operation.element == "int8"
        node = "ConvInteger" if integer else "Conv", ["x", "weights"], places
    kind, inputs, attributes = node
    return [helper.make_node(kind, inputs, ["y"], **attributes)]


def _weight_gradient(made: Plain) -> list[Any]:
    """Channels are the batch, and the result's gradient the window, which is spread by strides."""
    if made.operation.stride > 1 or made.operation.groups > 1:
        raise Unsupported("no gradient of the weights of a strided or grouped convolution")
    order = [1, 0, *range(2, 2 + made.rank)]
    places = {"pads": made.padding * 2, "strides": made.dilations}
    return [
        helper.make_node("Transpose", ["x"], ["image"], perm=order),
        helper.make_node("Transpose", ["weights"], ["window"], perm=order),
        helper.make_node("Conv", ["image", "window"], ["found"], **places),
        helper.make_node("Transpose", ["found"], ["y"], perm=order),
    ]


def _model(
    operation: Operation, nodes: list[Any], arrays: dict[str, Array], inputs: tuple[str, ...]
) -> bytes:
    dtype = TYPES[operation.element]
    graph = helper.make_graph(
        nodes,
        "operation",
        [helper.make_tensor_value_info(n, dtype, arrays[n].shape) for n in inputs],
        [helper.make_tensor_value_info("y", RESULTS[operation.element], [None] * arrays["x"].ndim)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n not in inputs],
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    serve(OnnxRuntime(int(os.environ["PEER_THREADS"])))

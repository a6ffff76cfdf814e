"""Models of ONNX written as functions: `lambda g, x: g.Softmax(x, axis=-1)`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.kernels.case import TYPES, Array, Given

OPSET, IR = 21, 10
KINDS: Mapping[str, int] = {
    "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "bf16": TensorProto.BFLOAT16,
    "f16": TensorProto.FLOAT16, "s8": TensorProto.INT8, "u8": TensorProto.UINT8,
    "s32": TensorProto.INT32, "u32": TensorProto.UINT32, "s64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}  # fmt: skip
Operand = str | float | Sequence[int] | Array


class Graph:
    """An attribute is an operator: called with names of values and attributes, it adds a node.

    A number with a point becomes f32, whole numbers and lists of them s64.  `outputs=2` gives two
    names.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __getattr__(self, operator: str) -> Callable[..., Any]:
        def node(*operands: Operand, outputs: int = 1, **attributes: Any) -> Any:
            names = [f"v{len(self.nodes)}_{k}" for k in range(outputs)]
            inputs = [self._name(x) for x in operands]
            self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
            return names[0] if outputs == 1 else tuple(names)

        return node

    def _name(self, operand: Operand) -> str:
        if isinstance(operand, str):
            return operand
        array = np.asarray(operand, np.float32 if isinstance(operand, float) else None)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name


def model(write: Callable[..., Any], given: Sequence[Given]) -> bytes:
    """A checked model whose inputs are named x0, x1, ..."""
    graph = Graph()
    names = [f"x{k}" for k in range(len(given))]
    made = write(graph, *names)
    results = [made] if isinstance(made, str) else list(made)
    whole = helper.make_graph(
        graph.nodes, "case",
        [helper.make_tensor_value_info(n, KINDS[g.dtype], g.shape)
         for n, g in zip(names, given, strict=True)],
        [helper.make_empty_tensor_value_info(n) for n in results],
        graph.constants,
    )  # fmt: skip
    opset = [helper.make_opsetid("", OPSET)]
    found = helper.make_model(whole, opset_imports=opset, ir_version=IR)
    found = onnx.shape_inference.infer_shapes(found, check_type=True, strict_mode=True)
    onnx.checker.check_model(found)
    return bytes(found.SerializeToString())


def stored(array: Array) -> Array:
    """The array as files of NumPy have it: bf16 as f32."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def restored(array: Array, dtype: str) -> Array:
    kind = TYPES[dtype]
    return array.astype(kind)

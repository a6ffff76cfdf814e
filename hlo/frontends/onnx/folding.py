"""Values that are known while a model is read: shape arithmetic, and what is made of weights.

ONNX's own reference implementation computes them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

FOLDED = frozenset(
    (
        "Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "BlackmanWindow", "Cast", "CastLike", "Ceil", "Clip",
        "Compress", "Concat", "ConstantOfShape", "Cos", "CumSum", "DequantizeLinear", "Div",
        "Equal", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements",
        "GatherND", "Greater", "GreaterOrEqual", "HammingWindow", "HannWindow", "Identity",
        "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "MelWeightMatrix", "Min",
        "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "Range",
        "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "Reshape", "Round", "Scatter", "ScatterElements", "ScatterND", "Shape", "Sign",
        "Sin", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "TopK",
        "Transpose", "Trilu", "Unique", "Unsqueeze", "Where", "Xor",
    )
)  # fmt: skip
SMALL = 1 << 16
"""Elements of a result that is kept as a constant even where its inputs are smaller."""


def fold(
    node: Any, opsets: Mapping[str, int], inputs: Sequence[np.ndarray[Any, Any] | None]
) -> list[Any] | None:
    """The results of a node of known inputs; None where they are left to the program.

    Raises whatever ONNX's reference raises for inputs that the operator does not take.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type not in FOLDED:
        return None
    most = max(SMALL, 2 * sum(i.size for i in inputs if i is not None))
    if node.op_type in _GROWING and _GROWING[node.op_type](inputs) > most:
        return None
    if node.op_type == "GatherElements":
        return [_gathered(node, *inputs)]
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    names = [name for name in dict.fromkeys(node.input) if name]
    function = helper.make_function("hlotune", "folded", names, list(node.output), [node], imports)
    given = {n: i for n, i in zip(node.input, inputs, strict=True) if n}
    results = ReferenceEvaluator(function).run(None, given, attributes={})
    return [np.asarray(r) for r in results]


def _gathered(node: Any, x: Any, places: Any) -> Any:
    """Elements at places along an axis; ONNX's reference fails where x is longer than these."""
    axis = next((int(a.i) for a in node.attribute if a.name == "axis"), 0) % x.ndim
    cut = tuple(slice(None if n == axis else extent) for n, extent in enumerate(places.shape))
    return np.take_along_axis(x[cut], places, axis)


def _elements(sizes: Any) -> int:
    return math.prod(int(s) for s in np.asarray(sizes).ravel())


def _range(inputs: Sequence[Any]) -> int:
    begin, end, step = (np.asarray(i).ravel()[0] for i in inputs)
    return abs(int((end - begin) / step)) if step else 0


def _padded(inputs: Sequence[Any]) -> int:
    return inputs[0].size * (1 + int(np.abs(inputs[1]).sum())) if len(inputs) > 1 else 0


_GROWING: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "ConstantOfShape": lambda i: _elements(i[0]),
    "Expand": lambda i: i[0].size * _elements(i[1]),
    "EyeLike": lambda i: i[0].size,
    "OneHot": lambda i: i[0].size * abs(_elements(i[1])),
    "Pad": _padded,
    "Range": _range,
    "Tile": lambda i: i[0].size * _elements(i[1]),
    "BlackmanWindow": lambda i: _elements(i[0]),
    "HannWindow": lambda i: _elements(i[0]),
    "HammingWindow": lambda i: _elements(i[0]),
}
"""Elements of the result at most, of operators whose results can be larger than their inputs."""

"""Small ONNX models."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RNG_SEED = 0


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node whose inputs and results are named in texts, apart by blanks; `-` leaves one out."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), **attributes)


def tensor(name: str, shape: Sequence[int | str] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    stored: dict[str, Any] | None = None,
    opset: int = 21,
) -> Any:
    """A model, not checked; `stored` are its initialisers by name."""
    initialisers = [numpy_helper.from_array(np.asarray(v), n) for n, v in (stored or {}).items()]
    graph = helper.make_graph(list(nodes), "made", list(inputs), list(outputs), initialisers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def of_one(operator: str, *shapes: Sequence[int], opset: int = 21, **attributes: Any) -> Any:
    """A model of one node, whose inputs are of f32."""
    inputs = [tensor(f"x{n}", shape) for n, shape in enumerate(shapes)]
    one = node(operator, " ".join(i.name for i in inputs), "y", **attributes)
    return model([one], inputs, [tensor("y", None)], opset=opset)


def weights(*shape: int, seed: int = RNG_SEED) -> Any:
    inner = max(1, int(np.prod(shape[1:])))
    values = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(inner)
    return values.astype(np.float32)


def cnn(batch: int | str = "batch", opset: int = 17) -> Any:
    """Two convolutions, and a reshape whose sizes are computed from a shape, as PyTorch writes."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        node("Relu", "c1", "r1"),
        node("MaxPool", "r1", "p1", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p1 w2 b2", "c2", pads=[1] * 4),
        node("Relu", "c2", "r2"),
        node("GlobalAveragePool", "r2", "g"),
        node("Shape", "g", "shape"),
        node("Gather", "shape zero", "n"),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 rest", "sizes", axis=0),
        node("Reshape", "g sizes", "flat"),
        node("Gemm", "flat w3 b3", "logits", transB=1),
        node("Softmax", "logits", "y", axis=1),
    ]
    stored = {
        "w1": weights(8, 3, 3, 3), "b1": weights(8), "w2": weights(16, 8, 3, 3), "b2": weights(16),
        "w3": weights(10, 16), "b3": weights(10), "zero": np.array(0), "axes": np.array([0]),
        "rest": np.array([-1]),
    }  # fmt: skip
    inputs, outputs = [tensor("x", [batch, 3, 16, 16])], [tensor("y", [batch, 10])]
    return model(nodes, inputs, outputs, stored, opset)


def transformer(opset: int = 23) -> Any:
    """A layer of attention and one of two products, with tokens and a mask as inputs."""
    nodes = [
        node("Gather", "embedding tokens", "e"),
        node("LayerNormalization", "e scale bias", "n1"),
        node("MatMul", "n1 wq", "q"),
        node("MatMul", "n1 wk", "k"),
        node("MatMul", "n1 wv", "v"),
        node("Attention", "q k v mask", "a", q_num_heads=4, kv_num_heads=2),
        node("MatMul", "a wo", "o"),
        node("Add", "e o", "r1"),
        node("RMSNormalization", "r1 scale", "n2"),
        node("MatMul", "n2 w1", "h"),
        node("Gelu", "h", "g", approximate="tanh"),
        node("MatMul", "g w2", "m"),
        node("Add", "r1 m", "y"),
    ]
    stored = {
        "embedding": weights(50, 32), "scale": 1 + weights(32), "bias": weights(32, seed=1),
        "wq": weights(32, 32), "wk": weights(32, 16), "wv": weights(32, 16, seed=2),
        "wo": weights(32, 32, seed=3), "w1": weights(32, 64), "w2": weights(64, 32),
    }  # fmt: skip
    inputs = [
        tensor("tokens", ["batch", "sequence"], TensorProto.INT64),
        tensor("mask", ["sequence", "sequence"], TensorProto.BOOL),
    ]
    return model(nodes, inputs, [tensor("y", ["batch", "sequence", 32])], stored, opset)


def saved(made: Any, path: Path) -> Path:
    path.write_bytes(made.SerializeToString())
    return path

"""ONNX models: from the bytes of a file to a StableHLO module."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from google.protobuf.message import DecodeError
from onnx import ModelProto, defs, helper

from hlotune.hlo.frontends.onnx.graphs import Surroundings, constants_in, run_graph
from hlotune.hlo.frontends.onnx.tensors import array_of, external_bytes
from hlotune.hlo.frontends.symbolic_sizes import Argument, static_shapes
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.cpu import HOST_PLATFORM

OLDEST_OPSET = 6
"""In older versions operators had other attributes."""
SECONDS_OF_A_NODE = 0.02
"""Processor time that tracing one node may take."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as StableHLO."""

    bytecode: bytes
    names: tuple[str, ...]
    """The names of its arguments, in order."""


def imported(
    data: bytes,
    path: str,
    sizes: Mapping[str, int],
    allow: Callable[[float, int], None] = lambda seconds, size: None,
) -> Imported:
    """The StableHLO module of an ONNX model.

    Args:
        sizes: of symbolic dimensions, by name.
        allow: is told, before they are taken, of the processor time in seconds that the model's
            nodes may take and of the bytes of its external data.

    Raises:
        ProgramError: the file holds no model, or one that hlotune does not take.
    """
    model = _parsed(data, path)
    folder = Path(path).resolve().parent
    tensors = [t for g in _graphs(model.graph) for t in g.initializer]
    allow(SECONDS_OF_A_NODE * _node_count(model), external_bytes(tensors, folder))
    opsets = _opsets(model, path)
    stored = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in stored]
    arguments = _arguments(inputs, sizes, path)
    around = Surroundings(
        opsets,
        {(f.domain, f.name): f for f in model.functions},
        lambda tensor: array_of(tensor, folder),
    )

    def program(*values: jax.Array) -> list[jax.Array]:
        return constants_in(run_graph(model.graph, values, {}, around))

    with jax.enable_x64(True):
        traced = jax.jit(program, keep_unused=True).trace(*arguments)
        lowered = traced.lower(lowering_platforms=(HOST_PLATFORM,))
        module = mlir.bytecode_of(lowered.compiler_ir("stablehlo"))
    return Imported(module, tuple(i.name for i in inputs))


def _parsed(data: bytes, path: str) -> Any:
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ProgramError(
            f"expected an ONNX model in {path}, got bytes that are no ModelProto ({error}); the "
            "file is damaged: write it again"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise ProgramError(
            f"expected an ONNX model in {path}, got a ModelProto without a graph or opsets; the "
            "file is damaged: write it again"
        )
    return model


def _opsets(model: Any, path: str) -> dict[str, int]:
    opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in model.opset_import}
    newest = defs.onnx_opset_version()
    if not OLDEST_OPSET <= opsets.get("", OLDEST_OPSET) <= newest:
        raise ProgramError(
            f"expected an ONNX model of opsets {OLDEST_OPSET} to {newest}, got opset "
            f"{opsets['']} in {path}; convert it with onnx.version_converter, or install a newer "
            "onnx"
        )
    return opsets


def _arguments(
    inputs: Sequence[Any], sizes: Mapping[str, int], path: str
) -> list[jax.ShapeDtypeStruct]:
    """Types of the model's arguments; sizes stand in for its symbolic dimensions."""
    arguments = [Argument(i.name, tuple(_sizes(i))) for i in inputs]
    shapes = static_shapes(arguments, sizes, path)
    return [_argument(i, shape) for i, shape in zip(inputs, shapes, strict=True)]


def _argument(value: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    tensor = value.type.tensor_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind in "OSU":
        raise _odd_input(value.name, "texts")
    if min(shape, default=0) < 0:
        raise _odd_input(value.name, f"shape {list(shape)}")
    return jax.ShapeDtypeStruct(shape, dtype)  # type: ignore[no-untyped-call]


def _sizes(value: Any) -> list[int | str]:
    """Sizes of an input; symbolic ones by their names."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise _odd_input(value.name, kind or "no type")
    if not value.type.tensor_type.HasField("shape"):
        raise _odd_input(value.name, "a tensor of unknown rank")
    dims = enumerate(value.type.tensor_type.shape.dim)
    return [d.dim_value if d.HasField("dim_value") else _symbol(value.name, n, d) for n, d in dims]


def _symbol(name: str, axis: int, dim: Any) -> str:
    """What a dimension without a size is called; one without a name is called by its place."""
    return dim.dim_param or f"{name}.{axis}"


def _odd_input(name: str, got: str) -> ProgramError:
    return ProgramError(
        f"expected inputs of an ONNX model to be tensors of numbers, got {got} as {name}; export "
        "the model with tensors of numbers and of known rank"
    )


def _graphs(graph: Any) -> list[Any]:
    """A graph and all those inside its nodes."""
    found, waiting = [], [graph]
    while waiting:
        found.append(taken := waiting.pop())
        for node in taken.node:
            for attribute in node.attribute:
                waiting += [attribute.g] if attribute.HasField("g") else []
                waiting += attribute.graphs
    return found


def _node_count(model: Any) -> int:
    graphs = [*_graphs(model.graph), *model.functions]
    return sum(len(g.node) for g in graphs)

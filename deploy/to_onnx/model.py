"""Makes an ONNX model of a program, and writes it to a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

import hlotune
from hlotune.deploy.to_onnx.table import RULES
from hlotune.deploy.to_onnx.writer import (
    OPSET,
    Shared,
    Tensor,
    Writer,
    info,
    initializer,
    require_type,
)
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph
from hlotune.schedules.errors import ProgramError

IR_VERSION = 8
"""The version of ONNX's format, of the year of the operators."""
MOST_BYTES_IN_ONE_FILE = 1 << 30
"""Models with more bytes of constants get a second file: a protocol buffer holds 2 GB at most."""


def model_of(program: Program) -> Any:
    """The ONNX model of a program; its inputs are the flat arguments, named by `input_names`.

    Raises:
        ProgramError: an operation cannot be written; the message names it.
    """
    graph = program.graph
    require_rules(graph)
    writer = Writer(graph, Shared(RULES))
    inputs = [
        Tensor(name, graph.types[a].shape, require_type(graph.types[a].dtype))
        for name, a in zip(input_names(program), graph.arguments, strict=True)
    ]
    writer.values |= dict(zip(graph.arguments, inputs, strict=True))
    results = writer.write()
    outputs = [Tensor(f"result_{k}", x.shape, x.dtype) for k, x in enumerate(results)]
    for x, y in zip(results, outputs, strict=True):
        writer.nodes.append(helper.make_node("Identity", [x.name], [y.name]))
    used = set(_names_in(writer.nodes))
    constants = [initializer(n, a) for n, a in writer.shared.constants.items() if n in used]
    written = helper.make_graph(
        writer.nodes, program.name, list(map(info, inputs)), list(map(info, outputs)), constants
    )
    return helper.make_model(
        written,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="hlotune",
        producer_version=hlotune.__version__,
    )


def require_rules(graph: Graph) -> None:
    """Raises ProgramError where operations have no rule; the message names all of them."""
    absent = sorted({name for name in operations_in(graph) if name not in RULES})
    if absent:
        raise ProgramError(
            f"expected operations that can be written to ONNX, got {', '.join(absent)}; leave "
            "them out of the program, or export the parts around them"
        )


def operations_in(graph: Graph) -> Iterator[str]:
    """The name of each operation, also in regions that become subgraphs of ONNX."""
    for op in graph.ops:
        yield op.name
        if op.name in ("stablehlo.while", "stablehlo.if", "stablehlo.case"):
            for region in op.regions:
                yield from operations_in(region)


def input_names(program: Program) -> list[str]:
    """A name for each flat argument: its own where all have distinct ones, else its number."""
    count = len(program.graph.arguments)
    names = list(program.names)
    if len(names) == count and all(names) and len(set(names)) == count:
        return names
    return [f"argument_{k}" for k in range(count)]


def _names_in(nodes: Any) -> Iterator[str]:
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names_in(attribute.g.node)


def save(model: Any, path: Path) -> None:
    """Writes the model; constants above a gigabyte go to a file of their own beside it."""
    size = sum(len(x.raw_data) for x in model.graph.initializer)
    if size <= MOST_BYTES_IN_ONE_FILE:
        onnx.save_model(model, str(path))
        return
    beside = path.name + ".data"
    (path.parent / beside).unlink(missing_ok=True)  # else the library appends to it
    onnx.save_model(model, str(path), save_as_external_data=True, location=beside)

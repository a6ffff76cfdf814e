"""PyTorch programs: from the bytes of a file of `torch.export` to a StableHLO module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from hlotune.hlo.frontends.pytorch.archive import Exported, dtype_of, exported
from hlotune.hlo.frontends.pytorch.graphs import nodes_in, require_known, run_graph
from hlotune.hlo.frontends.pytorch.symbols import require_in_range, size_of
from hlotune.hlo.frontends.pytorch.types import is_tensor
from hlotune.hlo.frontends.symbolic_sizes import Argument, static_shapes
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.cpu import HOST_PLATFORM

SECONDS_OF_A_NODE = 0.02
"""Processor time that tracing one node may take."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A module as StableHLO."""

    bytecode: bytes
    names: tuple[str, ...]
    """The names of its arguments, in order."""


def imported(
    data: bytes, path: str, sizes: Mapping[str, int], allow: Callable[[float, int], None]
) -> Imported:
    """The StableHLO module of a file of `torch.export.save`.

    Args:
        sizes: of symbolic dimensions, by name.
        allow: is told, before it is taken, of the processor time in seconds that the nodes may take
            and of the bytes that are read beyond those of the file.

    Raises:
        ProgramError: the file holds no such program, or one that hlotune does not take.
    """
    program = exported(data, path)
    require_known(program, path)
    allow(2 + SECONDS_OF_A_NODE * len(tuple(nodes_in(program.graph))), len(data))
    with jax.enable_x64(True):
        traced = jax.jit(tensors_of(program, path), keep_unused=True).trace(
            *argument_types(program, sizes, path)
        )
        lowered = traced.lower(lowering_platforms=(HOST_PLATFORM,))
        return Imported(mlir.bytecode_of(lowered.compiler_ir("stablehlo")), program.arguments)


def tensors_of(program: Exported, path: str) -> Callable[..., list[Any]]:
    """A function of the program's arguments that gives those of its results that are tensors."""

    def function(*arguments: Any) -> list[Any]:
        results = [r for r in run_graph(program, arguments, path) if is_tensor(r)]
        if not results:
            raise ProgramError(
                f"expected a module in {path} that returns tensors, got none; return one"
            )
        return results

    return function


def argument_types(
    program: Exported, sizes: Mapping[str, int], path: str
) -> list[jax.ShapeDtypeStruct]:
    """Shapes and element types of the program's arguments; sizes stand in for its symbols."""
    metas = [program.graph["tensor_values"][name] for name in program.arguments]
    arguments = [
        Argument(name, tuple(size_of(s, path) for s in meta["sizes"]))
        for name, meta in zip(program.arguments, metas, strict=True)
    ]
    shapes = static_shapes(arguments, sizes, path)
    require_in_range(program.ranges, arguments, shapes, path)
    return [
        jax.ShapeDtypeStruct(shape, dtype_of(meta["dtype"], f"input {name}"))  # type: ignore[no-untyped-call]
        for name, meta, shape in zip(program.arguments, metas, shapes, strict=True)
    ]

"""XLA as the device runs it: StableHLO text compiled by its CPU backend, called without the
dispatch of `jax.jit`.
"""

from collections.abc import Callable, Sequence
from typing import cast

import jax

from hlotune.hlo.graph import Graph
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir.versions import loaded
from hlotune.measure.verification.inputs import Array

Program = Callable[[Sequence[jax.Array]], list[jax.Array]]
"""Runs a compiled program on arrays that are on the device; may return before it is done."""

_HEAD = "func.func @kernel("


def compiled(text: str) -> Program:
    """Compiles a module with a function `@main`.  XLA's errors pass through."""
    return cast(Program, loaded(text).execute)


def on_device(array: Array) -> jax.Array:
    """The same memory as a device array, where it is aligned to 64 bytes; else a copy."""
    with jax.enable_x64(True):  # else f64 and i64 would be made smaller in silence
        return cast(jax.Array, jax.device_put(array))


def all_on_device(arrays: Sequence[Array]) -> list[jax.Array]:
    """`on_device` of each, in half the time."""
    with jax.enable_x64(True):
        return list(jax.device_put(list(arrays)))


def default_text(kernel: Kernel) -> str:
    """The kernel as a program of its own."""
    return kernel.text.replace(_HEAD, "func.func @main(", 1)


def baked_text(kernel: Kernel, graph: Graph, values: Sequence[Array]) -> str:
    """The kernel as a program with the values of its constants in its text.

    Args:
        values: of all arguments; those of type i1 cannot be constants.
    """
    lines, names, parameters = list[str](), list[str](), list[str]()
    for position, (argument, tensor) in enumerate(
        zip(graph.arguments, graph.argument_types, strict=True)
    ):
        names.append(f"%a{position}")
        if argument in graph.constants:
            data = values[position].tobytes().hex().upper()
            lines.append(f'  %a{position} = stablehlo.constant dense<"0x{data}"> : {tensor}')
        else:
            parameters.append(f"%a{position}: {tensor}")
    results = ", ".join(map(str, graph.result_types))
    several = len(graph.results) > 1
    used = ", ".join(f"%r#{i}" for i in range(len(graph.results))) if several else "%r"
    left = f"%r:{len(graph.results)}" if several else "%r"
    takes = ", ".join(map(str, graph.argument_types))
    return "\n".join(
        [
            f"func.func public @main({', '.join(parameters)}) -> ({results}) {{",
            *lines,
            f"  {left} = func.call @kernel({', '.join(names)}) : ({takes}) -> ({results})",
            f"  return {used} : {results}",
            "}",
            kernel.text.replace(_HEAD, "func.func private @kernel(", 1),
        ]
    )

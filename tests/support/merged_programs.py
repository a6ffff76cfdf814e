"""Programs that call small kernels one behind the other, written by hand, and merged."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.dispatcher import bind
from hlotune.codegen.runtime.loader import load
from hlotune.codegen.runtime.merged_calls import merge_calls
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.custom_calls import calls
from tests.codegen.test_dispatcher import program
from tests.support.ir_kernels import add, reversal, scale

F, G, WHOLE = "tensor<8xf32>", "tensor<2x4xf32>", "tensor<8xi64>"
X = np.arange(8, dtype=np.float32)
Y = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)


def bind_kernels() -> None:
    """Binds `double`, `triple` and `add` for eight f32, and `reverse` for eight i64."""
    bind("double", scale(2, 8))
    bind("triple", scale(3, 8))
    bind("add", add(8))
    bind("reverse", load(reversal(8, threads=2)))


def call(
    name: str, key: str, *operands: str, kind: str = F, scratch: int = 0, over: int | None = None
) -> str:  # fmt: skip
    """A call of operands of a type, which gives one of the same, and scratch."""
    results, produced = [kind], f"%{name}"
    if scratch:
        results, produced = [kind, f"tensor<{scratch}xui8>"], f"%{name}:2"
    alias = (
        ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], "
        f"operand_index = {over}, operand_tuple_indices = []>]"
    )
    return (
        f"{produced} = stablehlo.custom_call @{TARGET}({', '.join(operands)}) {{api_version = 4 "
        f': i32, backend_config = {{key = "{key}", scratch_bytes = {scratch} : i64}}'
        f"{alias if over is not None else ''}}} : ({', '.join([kind] * len(operands))}) -> "
        f"({', '.join(results)})"
    )


def written(*lines: str, gives: str, kind: str = F, donates: bool = False) -> str:
    """A program of two arguments of a type, %p and %q; the first result may lie where %p did."""
    kinds = ", ".join([kind] * len(gives.split(",")))
    gone = " {tf.aliasing_output = 0 : i32}" if donates else ""
    head = f"func.func public @main(%p: {kind}{gone}, %q: {kind}) -> ({kinds}) {{"
    return "\n".join(["module {", head, *lines, f"return {gives} : {kinds}", "}", "}"])


def merged(text: str) -> mlir.Module:
    module = mlir.parse(text)
    merge_calls(module)
    module.check("a program with merged calls")
    return module


def sites(module: mlir.Module) -> list[str]:
    """The keys of the kernels that each call of a program runs, in order."""
    return [str(x.config.get("keys", x.config.get("key"))) for x in calls(module, TARGET)]


def run(module: mlir.Module) -> Callable[..., list[Any]]:
    return program(str(module.op))

"""Calls that write over an argument of the program, and those that read it."""

from typing import Any

import pytest

from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.custom_calls import calls
from hlotune.hlo.mlir.ordered_writes import order_writes
from hlotune.hlo.mlir.walking import operations_in

F, S = "tensor<4x3xf32>", "tensor<2xf32>"


def call(
    name: str, operands: str, *, over: int | None = None, target: str = "ours", stacks: bool = False
) -> str:
    """A call named so, of operands with F, which gives F in the memory of one of them, and S."""
    alias = (
        ", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], "
        f"operand_index = {over}, operand_tuple_indices = []>]"
    )
    layouts = ", ".join(["dense<[1, 0]> : tensor<2xindex>"] * len(operands.split(",")))
    types = ", ".join([F] * len(operands.split(",")))
    return (
        f"%{name}:2 = stablehlo.custom_call @{target}({operands}) {{api_version = 4 : i32, "
        f'backend_config = {{key = "{name}"{", stacks = 1 : i64" if stacks else ""}}}, '
        f"operand_layouts = [{layouts}], "
        "result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]"
        f"{alias if over is not None else ''}}} : ({types}) -> ({F}, {S})"
    )


def ordered(*lines: str, results: str) -> mlir.Module:
    """A program of two arguments and these calls, its writes put in order."""
    gives = ", ".join([F] * len(results.split(",")))
    module = mlir.parse(
        f"module {{ func.func public @main(%p: {F}, %q: {F}) -> ({gives}) {{\n"
        + "\n".join(lines)
        + f"\nreturn {results} : {gives} }} }}"
    )
    order_writes(module, "ours")
    module.check("a program with ordered writes")
    return module


def taken(module: mlir.Module) -> dict[str, list[str]]:
    """The shapes of the operands that each call takes, by its name, in the order of the program."""
    found = calls(module, "ours")
    return {str(c.config["key"]): [str(t) for t in c.arguments] for c in found}


def test_a_call_that_writes_waits_for_those_that_read() -> None:
    module = ordered(
        call("w", "%p", over=0), call("r", "%p, %q"), results="%w#0, %r#0"
    )  # fmt: skip
    assert taken(module) == {"r": [F, F], "w": [F, S]}
    (_, write) = operations_in(module.op.operation, lambda name: "custom_call" in name)
    assert "operand_index = 0" in str(write.attributes["output_operand_aliases"])
    assert len(write.attributes["operand_layouts"]) == 2


@pytest.mark.parametrize(
    ("lines", "results"),
    [
        ((call("w", "%p", over=0), call("r", "%p, %w#0")), "%w#0, %r#0"),
        ((call("r", "%p"), call("w", "%p, %r#0", over=0)), "%w#0, %r#0"),
        ((call("w", "%p", over=0), call("r", "%q")), "%w#0, %r#0"),
        ((call("w", "%p"), call("r", "%p")), "%w#0, %r#0"),
        ((call("m", "%p"), call("w", "%m#0", over=0), call("r", "%m#0")), "%w#0, %r#0"),
        ((call("w", "%p", over=0), call("r", "%p", target="others")), "%w#0, %r#0"),
        ((call("w", "%p, %p", over=0),), "%w#0"),
        ((call("w", "%p", over=0, stacks=True), call("r", "%p")), "%w#0, %r#0"),
    ],
    ids=["waits already", "is waited for", "reads another", "writes elsewhere", "made on the way",
         "of others", "reads itself", "takes parts of stacks"],
)  # fmt: skip
def test_other_calls_are_left_alone(lines: tuple[str, ...], results: str) -> None:
    operands = [line.partition("(")[2].partition(")")[0].split(",") for line in lines]
    module = ordered(*lines, results=results)
    made: list[Any] = operations_in(module.op.operation, lambda name: "custom_call" in name)
    assert [len(x.operands) for x in made] == [len(x) for x in operands]


def test_a_call_that_waits_is_waited_for_in_turn() -> None:
    module = ordered(
        call("r", "%q, %p", over=0), call("w", "%p", over=0), call("s", "%q"),
        results="%r#0, %w#0, %s#0",
    )  # fmt: skip
    assert list(taken(module).items()) == [("s", [F]), ("r", [F, F, S]), ("w", [F, S])]


def test_calls_never_wait_for_one_another_in_a_ring() -> None:
    module = ordered(
        call("v", "%p, %q", over=0), call("w", "%q, %p", over=0), results="%v#0, %w#0"
    )  # fmt: skip
    assert sorted(map(len, taken(module).values())) == [2, 3]
    longer = ordered(
        call("v", "%p", over=0), call("a", "%v#0, %q"), call("w", "%q", over=0),
        call("b", "%w#0, %p"), results="%a#0, %b#0",
    )  # fmt: skip
    assert sorted(map(len, taken(longer).values())) == [1, 2, 2, 2]


def test_a_call_that_writes_takes_no_scratch_of_those_that_read() -> None:
    """Scratch is nobody's result: several calls may have theirs in one place."""
    reader = call("r", "%p, %q").replace('key = "r"', 'key = "r", scratch_bytes = 8 : i64')
    module = ordered(call("w", "%p", over=0), reader, results="%w#0, %r#0")
    assert taken(module) == {"r": [F, F], "w": [F, F]}

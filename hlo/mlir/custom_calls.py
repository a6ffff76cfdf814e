"""The custom calls of a module: what they call, and with which configuration and types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in


@dataclass(frozen=True, slots=True)
class Call:
    """A custom call: the texts and whole numbers of its configuration, and its types."""

    config: Mapping[str, str | int]
    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]


def calls(module: Module, target: str) -> tuple[Call, ...]:
    """The custom calls of a target in all functions of a module, in order.

    Raises ProgramError for a type that hlotune does not take.
    """
    with module.op.context:
        waiting, found = [module.op.operation], list[Call]()
        while waiting:
            operation = waiting.pop()
            if is_call_of(operation, target):
                found.append(_call(operation))
            inner = [o.operation for r in operation.regions for b in r.blocks for o in b.operations]
            waiting += reversed(inner)
        return tuple(found)


def call_targets(module: Module) -> set[str]:
    """The targets of all custom calls of a module."""
    with module.op.context:
        found = operations_in(module.op.operation, lambda name: name == "stablehlo.custom_call")
        return {str(ir.StringAttr(x.attributes["call_target_name"]).value) for x in found}


def is_call_of(operation: Any, target: str) -> bool:
    """Whether an operation is a custom call of a target."""
    if operation.name != "stablehlo.custom_call":
        return False
    return bool(ir.StringAttr(operation.attributes["call_target_name"]).value == target)


def config_of(operation: Any) -> dict[str, str | int]:
    """The texts and whole numbers of the configuration of a custom call."""
    config: dict[str, str | int] = {}
    has = "backend_config" in operation.attributes
    stated: Any = operation.attributes["backend_config"] if has else None
    for named in stated if isinstance(stated, ir.DictAttr) else ():  # type: ignore[union-attr]
        if isinstance(named.attr, ir.StringAttr | ir.IntegerAttr):
            config[named.name] = named.attr.value
    return config


def scratch_bytes(operation: Any) -> int:
    """The bytes of scratch that a custom call has as its last result; 0 where it has none."""
    stated = config_of(operation).get("scratch_bytes")
    return stated if isinstance(stated, int) else 0


def own_results(operation: Any) -> list[Any]:
    """The results of a custom call but for its scratch."""
    results = list(operation.results)
    return results[:-1] if scratch_bytes(operation) else results


def aliases_of(operation: Any) -> list[tuple[int, int]]:
    """(result, operand) for each result of a custom call that lies in the memory of an operand."""
    if "output_operand_aliases" not in operation.attributes:
        return []
    found = map(stablehlo.OutputOperandAlias, operation.attributes["output_operand_aliases"])
    return [(next(iter(a.output_tuple_indices), 0), a.operand_index) for a in found]


def row_major(kind: Any) -> Any:
    """The layout of an array of a type of MLIR in which its last dimension lies together."""
    return ir.Attribute.parse(row_major_text(len(tensor_type(kind).shape)))


def row_major_text(rank: int) -> str:
    """The same layout as text, of an array of so many dimensions."""
    order = f"[{', '.join(map(str, reversed(range(rank))))}]" if rank else ""
    return f"dense<{order}> : tensor<{rank}xindex>"


def _call(operation: Any) -> Call:
    return Call(
        config_of(operation),
        tuple(tensor_type(v.type) for v in operation.operands),
        tuple(tensor_type(v.type) for v in operation.results),
    )

"""The custom calls of a module: what they call, and with which configuration and types."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hlotune.hlo.graph import TensorType
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir
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


def _call(operation: Any) -> Call:
    return Call(
        config_of(operation),
        tuple(tensor_type(v.type) for v in operation.operands),
        tuple(tensor_type(v.type) for v in operation.results),
    )

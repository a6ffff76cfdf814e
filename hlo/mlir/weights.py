"""Weights of a program that lie beside its module, each value once in memory.

A module with hundreds of megabytes in it is copied whenever it is printed, read, rewritten or
compiled.  So where the constants of a program are larger than `LARGE_BYTES` together, the larger
ones are taken out.  In the module a call without operands stands in the place of each; a graph has
constants there, whose values are the arrays themselves; and whoever runs the module makes arguments
of them (`make_arguments`), or constants again
(`stored_values.with_weights`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import Literal, TensorType
from hlotune.hlo.mlir.values import literal, tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.schedules.dtypes import has_kernels
from hlotune.schedules.large_pages import ALIGNMENT, lasting

Weights = tuple[NDArray[Any], ...]

LARGE_BYTES = 256 << 20
"""Constants of a program, above which they are kept beside its module."""
LARGEST_INSIDE_BYTES = 1 << 20
"""A constant up to this size stays in the module, where passes can fold it."""
TARGET = "hlotune.weight."
"""Calls of this target, with a number behind it, stand for weights."""


def are_large(sizes: Sequence[int]) -> bool:
    """Whether constants of so many bytes each are to lie beside the module."""
    return sum(sizes) > LARGE_BYTES


def goes_outside(size: int) -> bool:
    return size > LARGEST_INSIDE_BYTES


def aligned(values: NDArray[Any]) -> NDArray[Any]:
    """The same values where JAX takes them without a copy: the same array if it lies so already."""
    if values.flags.c_contiguous and values.ctypes.data % ALIGNMENT == 0:
        return values
    flat: NDArray[np.uint8] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return lasting(flat).view(values.dtype).reshape(values.shape)


def number_of(operation: Any) -> int | None:
    """Which weight an operation stands for; None where it is any other operation."""
    if operation.name != "stablehlo.custom_call":
        return None
    target = ir.StringAttr(operation.attributes["call_target_name"]).value
    return int(target.removeprefix(TARGET)) if target.startswith(TARGET) else None


def literal_of(kind: TensorType, weights: Weights, number: int) -> Literal:
    """A weight as the value of a constant, in the memory of the array."""
    flat: Any = weights[number].reshape(-1).view(np.uint8)
    return Literal(kind, memoryview(flat).toreadonly(), False)


def take_out(module: Any, before: Weights = ()) -> Weights:
    """Takes large constants out of one of jaxlib's modules, which has calls in their places then.

    `before` are weights that the module has calls for already.
    """
    found = list(before)
    with module.context, ir.Location.unknown():
        for call in calls_in(module):
            _stand_in(call, number_of(call) or 0)
        constants = [c for c in operations_in(module.operation, _is_constant) if _is_known(c)]
        sizes = [tensor_type(c.results[0].type).bytes for c in constants]
        if not before and not are_large(sizes):
            return ()
        for constant, size in zip(constants, sizes, strict=True):
            value = literal(constant.attributes["value"]) if goes_outside(size) else None
            if value is not None and not value.splat:
                found.append(aligned(value.array()))
                _stand_in(constant, len(found) - 1)
    return tuple(found)


def make_arguments(module: Any, add: Callable[[Sequence[Any]], list[Any]]) -> list[int]:
    """Puts further arguments of a function in the places of weights.

    `add` appends arguments of some types to the function.  Returns which weight each one is.
    """
    with module.context, ir.Location.unknown():
        calls: dict[int, list[Any]] = {}
        for call in calls_in(module):
            calls.setdefault(number_of(call) or 0, []).append(call)
        arguments = add([same[0].results[0].type for same in calls.values()])
        for same, argument in zip(calls.values(), arguments, strict=True):
            for call in same:
                replace([call], list(call.results), [argument])
    return list(calls)


def calls_in(module: Any) -> list[Any]:
    """The operations of one of jaxlib's modules that stand for weights."""
    calls = operations_in(module.operation, lambda name: name == "stablehlo.custom_call")
    return [call for call in calls if number_of(call) is not None]


def _is_constant(name: str) -> bool:
    return name == "stablehlo.constant"


def _is_known(constant: Any) -> bool:
    """Whether kernels have its type."""
    return has_kernels(tensor_type(constant.results[0].type).dtype)


def _stand_in(operation: Any, number: int) -> None:
    """Puts a call without effects in the place of an operation, so that passes may drop it."""
    with ir.InsertionPoint(operation), operation.location:
        call = stablehlo.CustomCallOp(
            [operation.results[0].type],
            [],
            call_target_name=f"{TARGET}{number}",
            has_side_effect=False,
        )
    replace([operation], list(operation.results), list(call.results))

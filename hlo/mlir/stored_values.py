"""Constants whose values do not stand in the operation: resources of a module, and elided values.

Values that were elided when the program was written are nowhere; seeded random ones take their
place, so that kernels can be tuned, and a note says so wherever the program's numbers are shown.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import TensorType, numpy_dtype
from hlotune.hlo.mlir.module import Module
from hlotune.hlo.mlir.values import tensor_type
from hlotune.hlo.mlir.versions import ir, stablehlo
from hlotune.hlo.mlir.walking import operations_in, replace
from hlotune.hlo.mlir.weights import Weights, calls_in, number_of
from hlotune.schedules.errors import ProgramError

ELIDED_TARGET = "hlotune.elided"
"""Custom calls of this target stand for constants that HLO's text has as `{...}`."""
SEED = 20_261_126
_HANDLE = re.compile(r'dense_resource<"?([^">]*)"?>')
_ELIDED_HANDLE = re.compile(r"__elided__(_\d+)?")
_ALIGNMENT_BYTES = 4
"""Ahead of a resource's values: a number that says how they are to be aligned."""


def put_values(module: Module) -> tuple[str, ...]:
    """Puts dense elements in the place of resources and elided values; returns notes for people.

    Raises:
        ProgramError: a resource is missing, or has not the size of its constant.
    """
    with module.op.context, ir.Location.unknown():
        waiting = [
            (operation, handle)
            for operation in operations_in(module.op.operation, _may_wait)
            if (handle := _handle(operation)) is not None
        ]
        text = str(module.op) if any(not _is_elided(handle) for _, handle in waiting) else ""
        elided = list[TensorType]()
        for operation, handle in waiting:
            kind = tensor_type(operation.results[0].type)
            if _is_elided(handle):
                values = ordinary(kind, np.random.default_rng([SEED, len(elided)]))
                elided.append(kind)
            else:
                values = _resource(text, handle, kind)
            _put(operation, values)
    return (_note(elided),) if elided else ()


def with_weights(module: Module, weights: Weights) -> Module:
    """The module, in which weights that lay beside it are constants from now on."""
    with module.op.context, ir.Location.unknown():
        for call in calls_in(module.op):
            _put(call, weights[number_of(call) or 0])
    return module


def ordinary(kind: TensorType, rng: np.random.Generator) -> NDArray[np.generic]:
    """Values of the size that weights have: matrices keep the size of what they multiply, and
    vectors, which may be deviations, are about one and positive."""
    dtype = numpy_dtype(kind.dtype)
    values: NDArray[np.generic]
    if kind.dtype.startswith(("i", "ui")):
        values = np.asarray(rng.integers(0, 2, kind.shape))
    elif sum(extent > 1 for extent in kind.shape) < 2:
        values = np.asarray(rng.uniform(0.5, 1.5, kind.shape))
    else:
        terms = prod(kind.shape) / max(kind.shape)
        values = np.asarray(rng.standard_normal(kind.shape) / np.sqrt(terms))
    return values.astype(dtype)


def _may_wait(name: str) -> bool:
    return name in ("stablehlo.constant", "stablehlo.custom_call")


def _handle(operation: Any) -> str | None:
    """The name of a constant's values; None where they stand in the operation."""
    if operation.name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        return "__elided__" if target == ELIDED_TARGET else None
    try:
        value = operation.attributes["value"]
    except TypeError:  # jaxlib has no name for complex elements, which are dense
        return None
    if isinstance(value, ir.DenseElementsAttr):
        return None
    found = _HANDLE.match(str(value))
    return found[1] if found else None


def _is_elided(handle: str) -> bool:
    return _ELIDED_HANDLE.fullmatch(handle) is not None


def _resource(text: str, handle: str, kind: TensorType) -> NDArray[np.generic]:
    """jaxlib gives no access to resources: they are read from what MLIR prints."""
    pattern = re.compile(rf'^\s*"?{re.escape(handle)}"?: "0x([0-9A-Fa-f]*)"', re.MULTILINE)
    found = pattern.search(text, max(0, text.rfind("{-#")))
    if found is None:
        raise ProgramError(
            f"expected the values of resource {handle} in the module, got none; write the module "
            "with its resources"
        )
    data = bytes.fromhex(found[1])[_ALIGNMENT_BYTES:]
    if len(data) != kind.bytes:
        raise ProgramError(
            f"expected {kind.bytes} bytes in resource {handle} for a {kind}, got {len(data)}; "
            "write the module again"
        )
    return np.frombuffer(data, numpy_dtype(kind.dtype)).reshape(kind.shape)


def _put(operation: Any, values: NDArray[np.generic]) -> None:
    element = ir.RankedTensorType(operation.results[0].type).element_type
    with ir.InsertionPoint(operation), operation.location:
        constant = stablehlo.constant(dense(values, element))
    replace([operation], list(operation.results), [constant])


def dense(values: NDArray[np.generic], element: Any) -> Any:
    """The attribute of a constant: values, and MLIR's type of an element."""
    array: Any = np.array(values, order="C")
    if values.dtype == np.bool_:
        return ir.DenseElementsAttr.get(array)
    # NumPy has no buffers of the types that come from ml_dtypes
    plain = array if values.dtype.kind in "fiuc" else array.view(f"u{values.itemsize}")
    return ir.DenseElementsAttr.get(plain, type=element, shape=values.shape)


def _note(elided: Sequence[TensorType]) -> str:
    count = "1 constant" if len(elided) == 1 else f"{len(elided)} constants"
    size = sum(kind.bytes for kind in elided)
    return (
        f"{count} ({size:,} bytes) elided where the program was written: seeded random values "
        "stand there, so times hold and results are not the program's own"
    )

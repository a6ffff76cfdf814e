"""Python functions as custom calls of XLA: typed FFI handlers made with ctypes.

Structs are those of xla/ffi/api/c_api.h, which `codegen/runtime/dispatcher.ll` lists in full.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import TensorType, numpy_dtype

Array = NDArray[Any]
Function = Callable[[Sequence[Array]], Sequence[Array]]

_POINTER, _LONG, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("size", _LONG), ("next", _POINTER), ("count", _LONG), ("types", _POINTER),
        ("buffers", ctypes.POINTER(_POINTER)),
    )  # fmt: skip


class _CallFrame(ctypes.Structure):
    _fields_ = (
        ("size", _LONG), ("extension", _POINTER), ("api", _POINTER), ("context", _POINTER),
        ("stage", _INT), ("arguments", _Buffers), ("results", _Buffers),
    )  # fmt: skip


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("size", _LONG), ("next", _POINTER), ("dtype", _INT), ("data", _POINTER),
        ("rank", _LONG), ("dims", _POINTER),
    )  # fmt: skip


class _Version(ctypes.Structure):
    _fields_ = (("size", _LONG), ("next", _POINTER), ("major", _INT), ("minor", _INT))


class _Metadata(ctypes.Structure):
    _fields_ = (("size", _LONG), ("version", _Version), ("traits", _INT))


class _Extension(ctypes.Structure):
    _fields_ = (
        ("size", _LONG), ("type", _INT), ("next", _POINTER),
        ("metadata", ctypes.POINTER(_Metadata)),
    )  # fmt: skip


_HANDLER = ctypes.CFUNCTYPE(_POINTER, ctypes.POINTER(_CallFrame))
_alive: dict[str, Any] = {}


def register(
    name: str, function: Function, takes: Sequence[TensorType], gives: Sequence[TensorType]
) -> None:
    """Makes custom calls of that name run the function, on arrays of these types."""
    if name in _alive:
        return

    def handler(at: Any) -> None:
        frame = at.contents
        if frame.extension:
            _tell_version(frame.extension)
            return
        arguments, results = _arrays(frame.arguments, takes), _arrays(frame.results, gives)
        for result, made in zip(results, function(arguments), strict=True):
            result[...] = made

    _alive[name] = _HANDLER(handler)
    address = ctypes.cast(_alive[name], _POINTER)
    capsule: Any = jax.ffi.pycapsule(address)  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")


def call_text(name: str, takes: Sequence[TensorType], gives: Sequence[TensorType]) -> str:
    """A module whose `@main` is the custom call of that name; it has one result."""
    parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(takes))
    names = ", ".join(f"%a{i}" for i in range(len(takes)))
    (result,) = gives
    return (
        f"module {{\n  func.func public @main({parameters}) -> ({result}) {{\n"
        f"    %r = stablehlo.custom_call @{name}({names}) {{api_version = 4 : i32}} : "
        f"({', '.join(map(str, takes))}) -> {result}\n    return %r : {result}\n  }}\n}}\n"
    )


def _tell_version(extension: int) -> None:
    version = _Extension.from_address(extension).metadata.contents.version
    version.major, version.minor = 0, 3


def _arrays(buffers: _Buffers, types: Sequence[TensorType]) -> list[Array]:
    found = []
    for k, tensor in enumerate(types):
        buffer = _Buffer.from_address(buffers.buffers[k])
        data = (ctypes.c_uint8 * tensor.bytes).from_address(buffer.data)
        array = np.frombuffer(memoryview(data), numpy_dtype(tensor.dtype))
        found.append(array.reshape(tensor.shape))
    return found

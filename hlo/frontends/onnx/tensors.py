"""Tensors of a model file, and those that it keeps in other files of its folder."""

import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hlotune.schedules.errors import ProgramError

_STRING = TensorProto.STRING


def array_of(tensor: Any, folder: Path) -> np.ndarray[Any, Any]:
    """The values of a TensorProto; texts come as an array of objects.

    Args:
        folder: of the model; files of external data lie in it.

    Raises:
        ProgramError: the tensor is damaged, or its file lies elsewhere or is too short.
    """
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(tensor, " ".join(str(error).split())[:200]) from error


def external_bytes(tensors: list[Any], folder: Path) -> int:
    """Bytes of the files that hold the external data of some tensors, each file once."""
    found = {_file_of(t, folder) for t in tensors if t.data_location == TensorProto.EXTERNAL}
    return sum(path.stat().st_size for path in found)


def _external(tensor: Any, folder: Path) -> np.ndarray[Any, Any]:
    path = _file_of(tensor, folder)
    shape = tuple(tensor.dims)
    if tensor.data_type == _STRING or min(shape, default=0) < 0:
        raise _damaged(tensor, f"type {tensor.data_type} and shape {shape} in external data")
    entries = {e.key: e.value for e in tensor.external_data}
    try:
        begin = int(entries.get("offset", 0))
        count = _bytes_of(tensor.data_type, shape)
        length = int(entries.get("length", count))
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(tensor, " ".join(str(error).split())[:200]) from error
    has = path.stat().st_size
    if begin < 0 or length != count or begin + count > has:
        raise _damaged(
            tensor,
            f"{length} bytes from byte {begin} of {path.name}, a file of {has} bytes, where its "
            f"shape {shape} has {count}",
        )
    raw = np.memmap(path, np.uint8, "r", begin, (count,)) if count else np.zeros(0, np.uint8)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    if _is_packed(tensor.data_type):
        packed = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=raw.tobytes())
        return np.asarray(numpy_helper.to_array(packed))
    values: np.ndarray[Any, Any] = np.asarray(raw).view(dtype).reshape(shape)
    return values


_PACKED = {"UINT4": 2, "INT4": 2, "FLOAT4E2M1": 2, "UINT2": 4, "INT2": 4}
"""Elements of a byte, by the name of the type."""


def _is_packed(data_type: int) -> bool:
    return TensorProto.DataType.Name(data_type) in _PACKED


def _bytes_of(data_type: int, shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    in_a_byte = _PACKED.get(TensorProto.DataType.Name(data_type))
    if in_a_byte:
        return -(-count // in_a_byte)
    return count * int(np.dtype(helper.tensor_dtype_to_np_dtype(data_type)).itemsize)


def _file_of(tensor: Any, folder: Path) -> Path:
    """Raises ProgramError for a file that is not inside of the folder, or no regular one."""
    location = {e.key: e.value for e in tensor.external_data}.get("location", "")
    inside = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(inside, location))
    if not location or os.path.isabs(location) or os.path.commonpath([inside, path]) != inside:
        raise ProgramError(
            f"expected external data of tensor {tensor.name} in the folder of the model, got "
            f"{location!r}, which is outside of {folder} or a link out of it; move the file there"
        )
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        raise ProgramError(
            f"expected a file {location!r} in {folder} with the values of tensor {tensor.name}, "
            "got none; put it next to the model"
        )
    return Path(path)


def _damaged(tensor: Any, what: str) -> ProgramError:
    return ProgramError(
        f"expected values of tensor {tensor.name or '(without a name)'} that fit its type and "
        f"shape, got {what}; the model is damaged: write it again"
    )

"""Files of `torch.export.save`, read without torch: a graph in JSON, and tensors as raw bytes."""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from hlotune.schedules.errors import ProgramError

DTYPES: Mapping[int, Any] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int8),
    3: np.dtype(np.int16),
    4: np.dtype(np.int32),
    5: np.dtype(np.int64),
    6: np.dtype(np.float16),
    7: np.dtype(np.float32),
    8: np.dtype(np.float64),
    10: np.dtype(np.complex64),
    11: np.dtype(np.complex128),
    12: np.dtype(np.bool_),
    13: np.dtype(ml_dtypes.bfloat16),
    28: np.dtype(np.uint16),
    34: np.dtype(np.uint32),
    35: np.dtype(np.uint64),
}
"""Element types by their numbers in the file."""
SCHEMA = 8
"""The major version of the form of graphs, as torch 2.9 and later write it."""
_GRAPH = "models/model.json"
_KINDS = (
    ("parameter", "parameter_name"),
    ("buffer", "buffer_name"),
    ("tensor_constant", "tensor_constant_name"),
)


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program."""

    graph: Mapping[str, Any]
    signature: Mapping[str, Any]
    tensors: Mapping[str, Any]
    """Parameters, buffers and constants, by their names in the graph."""
    arguments: tuple[str, ...]
    """Names of tensors that a call gives, in order."""
    ranges: Mapping[str, tuple[int | None, int | None]]
    """Least and greatest value of each symbol among its sizes, as far as it has one."""


def exported(data: bytes, path: str) -> Exported:
    """The program of a file of `torch.export.save`.

    Raises:
        ProgramError: it holds no such program, or what could only be unpickled.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        names = {name.partition("/")[2]: name for name in archive.namelist()}
    except zipfile.BadZipFile as error:
        raise _damaged(path, f"no zip archive ({error})") from error
    with archive:
        if _GRAPH not in names:
            raise ProgramError(
                f"expected {_GRAPH} in {path}, as torch.export.save writes it since torch 2.9, got "
                "none; load the file with the torch that wrote it and save it with a newer one"
            )
        files = Files(archive, names, path, len(data))
        return _read(files)


@dataclass(frozen=True, slots=True)
class Files:
    """The members of an archive; each is stored as it is, so that none is larger than the file."""

    archive: zipfile.ZipFile
    names: Mapping[str, str]
    path: str
    size: int

    def member(self, name: str) -> bytes:
        if name not in self.names:
            raise _damaged(self.path, f"no {name}")
        info = self.archive.getinfo(self.names[name])
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > self.size:
            raise _damaged(self.path, f"{name} compressed or larger than the file")
        try:
            return self.archive.read(info)
        except (zipfile.BadZipFile, EOFError, RuntimeError) as error:
            raise _damaged(self.path, f"{name} damaged ({error})") from error

    def json(self, name: str) -> Any:
        text = self.member(name)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _damaged(self.path, f"{name} that is no JSON ({error})") from error


def _read(files: Files) -> Exported:
    document = files.json(_GRAPH)
    try:
        major = document["schema_version"]["major"]
        if major != SCHEMA:
            raise ProgramError(
                f"expected a graph of schema {SCHEMA} in {files.path}, got schema {major}; save it "
                "with a torch from 2.9 on, or install a newer hlotune"
            )
        module = document["graph_module"]
        signature = module["signature"]
        tensors, arguments = _inputs(signature, _stored(files), files.path)
        ranges = {
            name: (limits["min_val"], limits["max_val"])
            for name, limits in document.get("range_constraints", {}).items()
        }
        return Exported(module["graph"], signature, tensors, arguments, ranges)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        if isinstance(error, ProgramError):
            raise
        said = f"{type(error).__name__}: {error}"
        raise _damaged(files.path, f"a graph that lacks what it must have ({said})") from error


def _inputs(
    signature: Any, stored: Mapping[str, Any], path: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    tensors: dict[str, Any] = {}
    arguments = []
    for spec in signature["input_specs"]:
        ((kind, what),) = spec.items()
        named = dict(_KINDS).get(kind)
        if named is not None:
            tensors[what["arg"]["name"]] = stored[what[named]]
        elif kind == "user_input" and "as_tensor" in what["arg"]:
            arguments.append(what["arg"]["as_tensor"]["name"])
        elif kind not in ("user_input", "constant_input"):
            raise ProgramError(
                f"expected tensors as inputs of {path}, got a {kind.replace('_', ' ')}; export the "
                "module with tensors alone"
            )
    return tensors, tuple(arguments)


def _stored(files: Files) -> dict[str, Any]:
    """Tensors by their names in the module."""
    found = {}
    for folder, kind in (("weights", "weights"), ("constants", "constants")):
        listed = files.json(f"data/{folder}/model_{kind}_config.json")["config"]
        for name, entry in listed.items():
            if entry["use_pickle"] or entry["tensor_meta"] is None:
                raise ProgramError(
                    f"expected tensors as raw bytes in {files.path}, got {name!r} pickled, and "
                    "unpickling runs code of the file; export the module with plain dense tensors"
                )
            content = files.member(f"data/{folder}/{entry['path_name']}")
            found[name] = _tensor(content, entry["tensor_meta"], name, files.path)
    return found


def _tensor(content: bytes, meta: Any, name: str, path: str) -> Any:
    dtype = dtype_of(meta["dtype"], f"tensor {name!r} of {path}")
    shape = sizes_of(meta["sizes"], path)
    strides = sizes_of(meta["strides"], path)
    offset = meta["storage_offset"]["as_int"] * dtype.itemsize
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    reach = sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
    if min((*shape, *strides, offset)) < 0 or offset + (reach + 1) * dtype.itemsize > len(content):
        raise _damaged(path, f"{len(content)} bytes of {name!r}, too few for {list(shape)}")
    return np.ndarray(shape, dtype, content, offset, [s * dtype.itemsize for s in strides])


def dtype_of(number: int, where: str) -> Any:
    """The element type; `where` tells an error whose it is."""
    if number not in DTYPES:
        raise ProgramError(
            f"expected elements of {', '.join(d.name for d in DTYPES.values())} as {where}, got "
            f"type {number} of PyTorch; convert it before the export"
        )
    return DTYPES[number]


def sizes_of(sizes: Any, path: str) -> tuple[int, ...]:
    """Sizes that are numbers; raises ProgramError for symbols."""
    if any("as_int" not in s for s in sizes):
        raise ProgramError(
            f"expected sizes of weights that are numbers in {path}, got symbols; write the file "
            "again"
        )
    return tuple(int(s["as_int"]) for s in sizes)


def _damaged(path: str, got: str) -> ProgramError:
    return ProgramError(
        f"expected a file of torch.export.save in {path}, got {got}; write it again"
    )

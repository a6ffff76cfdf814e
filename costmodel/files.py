"""Files of models: a header in JSON and arrays, in one compressed `.npz`; no code in it.

The header tells which model it is and which features it reads, so that a file of other features is
refused instead of misread, and on what it was trained, so that nobody judges it by that.
"""

import hashlib
import io
import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Reads, columns
from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import ModelError
from hlotune.schedules.features.summary import FEATURES_VERSION

FORMAT = 2
LARGEST_BYTES = 1 << 30
"""The most bytes of a file's arrays together; the largest model of the package has 2 MB."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Training:
    """What a model has seen."""

    trials: int
    kernels: tuple[str, ...]
    """Keys."""
    families: tuple[str, ...]
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    model: str
    features: str
    """`features_key` of what the model reads."""
    training: Training | None = None
    format: int = FORMAT


def features_key(reads: Reads) -> str:
    """Version and names of the features: equal keys mean equal columns."""
    digest = hashlib.sha256("\n".join(columns(reads)).encode()).hexdigest()
    return f"{FEATURES_VERSION}-{digest[:12]}"


def write(path: Path, header: Header, arrays: Arrays) -> None:
    """The file appears whole or not at all."""
    text = np.frombuffer(json.dumps(asdict(header), sort_keys=True).encode(), np.uint8)
    write_arrays(path, header=text, **arrays)


def write_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """A compressed `.npz`, which appears whole or not at all.  Raises OSError."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    with whole(path) as part:
        part.write_bytes(buffer.getvalue())


def header_of(path: Path) -> Header:
    """Raises ModelError where the file is none of a model, or of a newer format."""
    return read_file(path)[0]


@contextmanager
def arrays_of(path: Path, model: str, reads: Reads) -> Iterator[Arrays]:
    """What a model wrote, to be taken over in the block.

    Raises ModelError where it was another model, or one of other features, or where the block
    cannot take it over.
    """
    header, arrays = read_file(path)
    if header.model != model:
        raise ModelError(
            f"expected a file of the model {model}, got one of {header.model} in {path}; "
            f"give --model {header.model}, or another file"
        )
    if header.features != features_key(reads):
        raise ModelError(
            f"expected a model of features {features_key(reads)}, got {header.features} in {path}; "
            "train it again with `tune model train`"
        )
    with in_words(path):
        if any(a.dtype.kind == "f" and not np.isfinite(a).all() for a in arrays.values()):
            raise ValueError("no trained model has numbers that are none")
        yield arrays


def annotate(path: Path, training: Training) -> None:
    """Writes into the file of a model what it was trained on."""
    header, arrays = read_file(path)
    write(path, replace(header, training=training), arrays)


class Damaged(ValueError):
    """A file has something that no model has.  The message says what the file has, for people."""


BROKEN = (
    OSError, EOFError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError,
    MemoryError, SyntaxError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What reading a file that is damaged, or none of a model, can raise."""


def read_arrays(path: Path) -> Arrays | None:
    """What `write_arrays` wrote; None where there is no such file, or a damaged one."""
    try:
        return _arrays(path)
    except BROKEN:
        return None


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Each member is read to its end, where its checksum stands."""
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
        if sum(m.file_size for m in members) > LARGEST_BYTES:
            raise Damaged(f"arrays of more than {LARGEST_BYTES >> 20} MB")
        return {m.filename.removesuffix(".npy"): _array(file.read(m)) for m in members}


def _array(member: bytes) -> NDArray[Any]:
    array: NDArray[Any] = np.lib.format.read_array(io.BytesIO(member), allow_pickle=False)
    return array


def read_file(path: Path) -> tuple[Header, Arrays]:
    """Raises ModelError where the file is none of a model, or of a newer format."""
    with in_words(path):
        arrays = _arrays(path)
        fields = json.loads(arrays.pop("header").tobytes())
        if fields["format"] > FORMAT:
            raise ModelError(
                f"expected a model file of format {FORMAT} or older, got {fields['format']} in "
                f"{path}; update hlotune"
            )
        return _header(fields), arrays


@contextmanager
def in_words(path: Path) -> Iterator[None]:
    """What a file that is damaged, or none of a model, makes the block raise is a ModelError."""
    try:
        yield
    except ModelError:
        raise
    except BROKEN as error:
        raise ModelError(
            f"expected a file of a cost model at {path}, got {_problem(error)}; "
            "`tune model train` makes one"
        ) from error


def _problem(error: Exception) -> str:
    """The problem in words of the file: numpy takes what it cannot read for pickled objects, and
    says so.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, Damaged):
        return str(error)
    return "one that is damaged or of another kind"


def _header(fields: dict[str, Any]) -> Header:
    seen = fields.pop("training")
    if seen is not None:
        lists = {name: tuple(seen[name]) for name in ("kernels", "families")}
        seen = Training(**{**seen, **lists})
    return Header(**fields, training=seen)

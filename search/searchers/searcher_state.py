"""States of searchers as bytes: NumPy arrays in one compressed `npz`, never pickled."""

import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def packed(arrays: Arrays) -> bytes:
    file = BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def unpacked(state: bytes) -> dict[str, NDArray[Any]]:
    """Raises ValueError where the bytes are no state of a searcher."""
    try:
        with np.load(BytesIO(state), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, RuntimeError, BadZipFile, zlib.error) as error:
        raise ValueError(f"expected the saved state of a searcher, got {state[:16]!r}") from error

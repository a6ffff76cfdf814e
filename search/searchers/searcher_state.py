"""States of searchers as bytes: NumPy arrays in one compressed `npz`, never pickled."""

import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


def packed(arrays: Arrays) -> bytes:
    """Compressed a little: as NumPy does it takes twice as long, for 6 % fewer bytes."""
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            content = BytesIO()
            np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
            entry = ZipInfo(f"{name}.npy")  # of no date: equal states are equal bytes
            archive.writestr(entry, content.getvalue(), ZIP_DEFLATED, compresslevel=1)
    return file.getvalue()


def unpacked(state: bytes) -> dict[str, NDArray[Any]]:
    """Raises ValueError where the bytes are no state of a searcher."""
    try:
        with np.load(BytesIO(state), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, EOFError, ValueError, RuntimeError, BadZipFile, zlib.error) as error:
        raise ValueError(f"expected the saved state of a searcher, got {state[:16]!r}") from error

"""Values as numbers of f64, a complex one as two of them, and which of them are finite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def plain(values: Array) -> NDArray[np.float64]:
    """Values as doubles; of complex ones real and imaginary parts beside each other, on a last axis
    of two."""
    if values.dtype.kind == "c":
        return np.stack((values.real, values.imag), -1).astype(np.float64)
    return values.astype(np.float64)


def finite(values: Array) -> NDArray[np.bool_]:
    if values.dtype in (np.float32, np.float64):
        return np.isfinite(values)  # without a copy: results may be large
    return np.isfinite(plain(values))

"""Large random arrays whose values repeat: many addresses, the memory of one period.

The weights of a dense layer may take hundreds of megabytes, and a kernel is verified with several
sets of them.  A period is 1021 times 4096 elements: rows of any usual length begin at other places
of it each time, so that a block which is read twice, or in the place of another, still shows.
"""

import ctypes
import mmap
import os
import weakref
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERIOD = 1021 * 4096
"""Elements; of every element type it takes whole pages."""
SHORT_PERIOD = 251 * 4096
"""The same where nothing is timed: each set of inputs is drawn anew."""
_FIXED = 0x10
"""Linux's MAP_FIXED."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def is_large(shape: tuple[int, ...], period: int = PERIOD) -> bool:
    """Whether an array is worth a period: it has four of them or more."""
    return prod(shape) >= 4 * period


def repeated(period: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A read-only array of a shape, which has the elements of one period again and again.

    It begins on a page.  Where the system has no such mappings the elements are copied.

    Raises OSError where the system does not map memory.
    """
    if not hasattr(os, "memfd_create"):
        return np.resize(period, shape)
    size = prod(shape) * period.itemsize
    file = os.memfd_create("period")
    try:
        os.write(file, period.tobytes())
        address = _mapped(file, period.nbytes, size)
    finally:
        os.close(file)
    memory: Any = (ctypes.c_uint8 * size).from_address(address)
    weakref.finalize(memory, _LIBC.munmap, address, size)
    flat: NDArray[Any] = np.frombuffer(memory, dtype=np.uint8)
    values: NDArray[Any] = flat.view(period.dtype).reshape(shape)
    values.flags.writeable = False
    return values


def _mapped(file: int, period_bytes: int, size: int) -> int:
    """The address of `size` bytes, each period of which is the beginning of the file."""
    address = _map(None, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    for start in range(0, size, period_bytes):
        length = min(period_bytes, size - start)
        _map(address + start, length, mmap.MAP_SHARED | _FIXED, file)
    return address


def _map(address: int | None, size: int, how: int, file: int) -> int:
    found = _LIBC.mmap(address, size, mmap.PROT_READ, how, file, 0)
    if found is None or found == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"expected mmap to give {size} bytes, got error {code}")
    return int(found)

"""Memory for values that stay, in pages of 2 MiB where Linux gives them.

Weights are read once a call, one line behind the other.  In pages of 4 KB the processor stops
fetching ahead at the end of each, and looks each up.
"""

import mmap
from collections.abc import Sequence
from itertools import accumulate
from threading import Lock

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 2 << 20
ALIGNMENT = 64
"""JAX takes memory that is so aligned as it is, and copies other memory."""
LEAST_BYTES = 1 << 16
"""Smaller values lie in memory of their own, which is returned when they are gone."""
REGION_BYTES = 16 * PAGE_BYTES
"""Values share regions of this size; a larger one has a region of its own."""


def region(size: int) -> NDArray[np.uint8]:
    """Zeros in whole large pages, at least `size` bytes, from the start of one on."""
    whole = np.frombuffer(_mapping((-(-size // PAGE_BYTES) + 1) * PAGE_BYTES), dtype=np.uint8)
    return whole[-whole.ctypes.data % PAGE_BYTES :]


def _mapping(length: int) -> mmap.mmap:
    """Linux gives large pages to memory of one process alone, unless it is told otherwise."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return mmap.mmap(-1, length)
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class _Regions:
    """The region that the next values go into, and what of it is taken."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._taken = 0

    def take(self, size: int) -> NDArray[np.uint8]:
        with self._lock:
            if self._taken + size > self._memory.size:
                self._memory, self._taken = region(max(size, REGION_BYTES)), 0
            found = self._memory[self._taken : self._taken + size]
            self._taken += -(-size // ALIGNMENT) * ALIGNMENT
            return found


_REGIONS = _Regions()


def room(size: int) -> NDArray[np.uint8]:
    """Memory of `size` bytes for values that stay, aligned to 64; it holds whatever it held.

    Its region is returned to the system when all values in it are gone.
    """
    if size >= LEAST_BYTES:
        return _REGIONS.take(size)
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def lasting(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy of `(n,)` bytes in such memory, which JAX takes as they lie."""
    place = room(values.size)
    place[...] = values
    return place


def joined(values: Sequence[NDArray[np.uint8]]) -> tuple[NDArray[np.uint8], tuple[int, ...]]:
    """Copies of values of bytes, `(n,)` each, one behind the other in one array, and how many bytes
    from its beginning each lies, aligned to 64.

    Their sizes and order alone tell where they lie, so that programs are the same in any process.
    """
    sizes = [-(-value.nbytes // ALIGNMENT) * ALIGNMENT for value in values]
    offsets = [0, *accumulate(sizes)]
    array = room(offsets.pop())
    for value, at in zip(values, offsets, strict=True):
        array[at : at + value.nbytes] = value
    return array, tuple(offsets)

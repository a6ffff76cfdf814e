"""Guarded buffers: what reads or writes outside of one ends the process, or is seen afterwards.

A buffer touches a page without access at one of its ends.  What is left of its pages at the other
end is filled with a pattern, and `intact` says whether somebody wrote there.
"""

import ctypes
import mmap
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Placement = Literal["behind", "before"]
"""Where the guard page touches the data."""

POISON = 0xFF
"""Every floating-point type reads this byte, repeated, as NaN; every signed integer as -1."""

ALIGNMENT = 64
_CANARY = 0xA5
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True, eq=False)
class Guarded:
    """`bytes` bytes at `address`; the memory lives as long as this or any array made of it.

    With the guard `before`, the data starts on a page.  With the guard `behind` it ends on one,
    so it starts on a multiple of 64 only if its size is one: emitted code relies on the alignment
    of elements alone.
    """

    memory: NDArray[np.uint8]
    """The readable pages: canary, data, canary."""
    start: int
    bytes: int

    @property
    def data(self) -> NDArray[np.uint8]:
        return self.memory[self.start : self.start + self.bytes]

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.start

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
        """The data as an array that shares its memory."""
        return self.data.view(dtype).reshape(shape)

    def fill(self, value: int = POISON) -> None:
        self.data[...] = value

    @property
    def intact(self) -> bool:
        """Whether the bytes around the data are as they were."""
        before, after = self.memory[: self.start], self.memory[self.start + self.bytes :]
        return bool((before == _CANARY).all() and (after == _CANARY).all())


def guarded(size: int, placement: Placement) -> Guarded:
    """A poisoned buffer of `size` bytes, with a page without access on either side of its pages.

    Raises OSError where the system gives no memory, or does not protect it.
    """
    length = max(1, -(-size // _PAGE)) * _PAGE
    region = mmap.mmap(-1, length + 2 * _PAGE)
    everything = np.frombuffer(region, dtype=np.uint8)
    first = int(everything.ctypes.data)
    for page in (first, first + _PAGE + length):
        if _LIBC.mprotect(page, _PAGE, _PROT_NONE):
            code = ctypes.get_errno()
            raise OSError(code, f"expected mprotect to close a guard page, got error {code}")
    memory = everything[_PAGE : _PAGE + length]
    start = length - size if placement == "behind" else 0
    memory[:start] = _CANARY
    memory[start + size :] = _CANARY
    buffer = Guarded(memory, start, size)
    buffer.fill()
    return buffer


def rounded(size: int) -> int:
    """`size` up to a multiple of 64 bytes, as scratch and packed constants are provided."""
    return -(-size // ALIGNMENT) * ALIGNMENT

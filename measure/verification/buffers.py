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

POISONS = (POISON, 0x7E, 0xFD)
"""Poisons of one call after the other with the same inputs: no integer is every one of them, so
what a kernel does not write, or makes of what it did not, differs between the calls.  Their signs
and lowest bits differ, and floating-point types read the others as very large numbers or NaN.
"""

ALIGNMENT = 64
_CANARY = 0xA5
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
MOST_KEPT_BYTES = 64 << 20
"""The largest buffer that is kept; a larger one gets memory of its own."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass(frozen=True, eq=False)
class Guarded:
    """`bytes` bytes at `address`; the memory lives as long as this or any array made of it.

    With the guard `before`, the data starts on a page.  With the guard `behind` it ends on one,
    so it starts on a multiple of 64 only if its size is one: emitted code relies on no more than
    this, and on the alignment of elements.
    """

    memory: NDArray[np.uint8]
    """The readable pages: canary, data, canary."""
    start: int
    bytes: int
    poison: int = POISON
    """The byte that a fresh buffer is filled with."""

    @property
    def data(self) -> NDArray[np.uint8]:
        return self.memory[self.start : self.start + self.bytes]

    @property
    def address(self) -> int:
        return int(self.memory.ctypes.data) + self.start

    def array(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> NDArray[np.generic]:
        """The data as an array that shares its memory."""
        return self.data.view(dtype).reshape(shape)

    def fill(self, value: int) -> None:
        self.data[...] = value

    def unwritten(self, element_bytes: int) -> NDArray[np.bool_]:
        """For each element whether it is poison still; a number may look like that by chance."""
        elements = self.data.view(f"u{element_bytes}")
        fresh: NDArray[np.bool_] = elements == int.from_bytes([self.poison] * element_bytes)
        return fresh

    @property
    def intact(self) -> bool:
        """Whether the bytes around the data are as they were."""
        before, after = self.memory[: self.start], self.memory[self.start + self.bytes :]
        return bool((before == _CANARY).all() and (after == _CANARY).all())


def guarded(size: int, placement: Placement, poison: int = POISON) -> Guarded:
    """A poisoned buffer of `size` bytes, with a page without access on either side of its pages.

    Raises OSError where the system gives no memory, or does not protect it.
    """
    return _Region(size).buffer(size, placement, poison)


class Pages:
    """Buffers as `guarded` makes them, in memory that is kept: a fresh page costs a fault.

    Those made since the last `release` stand apart; what was made before it must not be used.
    """

    def __init__(self) -> None:
        self._regions: list[_Region] = []
        self._given = 0

    def release(self) -> None:
        self._given = 0

    def guarded(self, size: int, placement: Placement, poison: int = POISON) -> Guarded:
        if size > MOST_KEPT_BYTES:
            return guarded(size, placement, poison)
        self._given += 1
        if self._given > len(self._regions):
            self._regions.append(_Region(size))
        elif not self._regions[self._given - 1].holds(size):
            self._regions[self._given - 1] = _Region(size)
        return self._regions[self._given - 1].buffer(size, placement, poison)


class _Region:
    """Pages behind one without access, and in front of another, wherever a buffer puts that."""

    def __init__(self, size: int) -> None:
        self._most = _whole_pages(size)
        self._everything = np.frombuffer(mmap.mmap(-1, self._most + 2 * _PAGE), dtype=np.uint8)
        self._first = int(self._everything.ctypes.data)
        _protect(self._first, _PROT_NONE)
        self._closed: int | None = None

    def holds(self, size: int) -> bool:
        return _whole_pages(size) <= self._most

    def buffer(self, size: int, placement: Placement, poison: int) -> Guarded:
        length = _whole_pages(size)
        self._close(self._first + _PAGE + length)
        memory = self._everything[_PAGE : _PAGE + length]
        start = length - size if placement == "behind" else 0
        memory[:start] = _CANARY
        memory[start + size :] = _CANARY
        buffer = Guarded(memory, start, size, poison)
        buffer.fill(poison)
        return buffer

    def _close(self, page: int) -> None:
        if self._closed == page:
            return
        if self._closed is not None:
            _protect(self._closed, mmap.PROT_READ | mmap.PROT_WRITE)
        _protect(page, _PROT_NONE)
        self._closed = page


def _protect(page: int, access: int) -> None:
    if _LIBC.mprotect(page, _PAGE, access):
        code = ctypes.get_errno()
        raise OSError(code, f"expected mprotect to open or close a guard page, got error {code}")


def _whole_pages(size: int) -> int:
    return max(1, -(-size // _PAGE)) * _PAGE


def rounded(size: int) -> int:
    """`size` up to a multiple of 64 bytes, as scratch and packed constants are provided."""
    return -(-size // ALIGNMENT) * ALIGNMENT

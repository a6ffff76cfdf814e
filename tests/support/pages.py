"""Memory in pages of 4 KiB, and how much of it lies in pages of 2 MiB.

Linux tells that from 6.7 on.
"""

import ctypes
import fcntl
import mmap
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.codegen.runtime import moved_pages
from hlotune.codegen.runtime.moved_pages import MADV_COLLAPSE

PAGE = 2 << 20
DONT_NEED, NO_LARGE = 4, 15
"""Linux's numbers of MADV_DONTNEED and MADV_NOHUGEPAGE."""
_PAGES = Path("/proc/self/pagemap")
_SCAN, _HUGE = 0xC0606610, 1 << 6
"""PAGEMAP_SCAN and PAGE_IS_HUGE of Linux's fs.h."""
_MOST = 64
"""Stretches of large pages in a range: those that touch each other are one."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def mapped(size: int) -> NDArray[np.uint8]:
    """New memory that nobody has touched, from the start of a large page on."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = np.frombuffer(mmap.mmap(-1, size + 2 * PAGE, flags=flags), dtype=np.uint8)
    return memory[-memory.ctypes.data % PAGE :][:size]


def small_pages(size: int) -> NDArray[np.uint8]:
    """Ones from the start of a large page on; in small ones, where Linux makes others on demand."""
    found = mapped(size)
    found[...] = 1
    return found


def whole_pages(address: int, size: int) -> tuple[int, int]:
    """Begin and end of the large pages that lie in a range as a whole."""
    return -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE


def advised(address: int, size: int, advice: int) -> bool:
    """Whether Linux takes advice for the whole pages of a range."""
    low, high = whole_pages(address, size)
    return int(_LIBC.madvise(ctypes.c_void_p(low), ctypes.c_size_t(high - low), advice)) == 0


def put_into_small_pages(address: int, size: int) -> None:
    """Writes ones to the whole pages of a range, and keeps large ones from it."""
    low, high = whole_pages(address, size)
    assert advised(address, size, NO_LARGE)
    assert advised(address, size, DONT_NEED)
    ctypes.memset(low, 1, high - low)


def in_large_pages(address: int, size: int) -> int:
    """Bytes of a range that lie in large pages which it has as a whole."""
    low, high = whole_pages(address, size)
    found = (ctypes.c_uint64 * (3 * _MOST))()
    place = ctypes.addressof(found)
    question = (ctypes.c_uint64 * 12)(96, 0, low, high, 0, place, _MOST, 0, 0, _HUGE, 0, _HUGE)
    with _PAGES.open("rb", buffering=0) as pages:
        count = fcntl.ioctl(pages, _SCAN, question)
    return sum(int(found[3 * i + 1]) - int(found[3 * i]) for i in range(count))


def flags_of(address: int) -> str:
    """The flags of the memory that an address lies in, as Linux has them."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(x, 16) for x in first.split("-"))
            inside = low <= address < high
        elif inside and first == "VmFlags:":
            return line
    return ""


def _can_move() -> bool:
    if sys.platform != "linux" or moved_pages.small_pages_alone():
        return False
    if "[madvise]" not in moved_pages.LARGE_PAGES.read_text(encoding="ascii"):
        return False
    memory = small_pages(PAGE)
    place = memory.ctypes.data, PAGE
    try:
        return advised(*place, MADV_COLLAPSE) and in_large_pages(*place) == PAGE
    except OSError:
        return False


needs_moves = pytest.mark.skipif(
    not _can_move(),
    reason="Linux moves nothing into large pages here, makes them undemanded, or does not tell",
)

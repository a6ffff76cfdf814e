"""Memory that arrays leave behind stays with the process for the arrays that come next."""

import ctypes
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Of `mallopt`, by glibc's malloc.h."""
SETTINGS = {TRIM_THRESHOLD: 256 << 20, TOP_PAD: 64 << 20, MMAP_THRESHOLD: 32 << 20}


@cache
def keep_memory() -> bool:
    """Whether the C library could be told to keep what is freed, up to some hundred megabytes.

    A step of a search fills and frees megabytes of arrays, some hundred kilobytes each.  glibc
    gives them back to the system, which clears each page anew when it is touched again.

    It holds for all of the process, so that only commands that are processes of ours ask for it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return all([mallopt(name, value) for name, value in SETTINGS.items()])

"""Memory that arrays leave behind stays with the process for the arrays that come next."""

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Of `mallopt`, by glibc's malloc.h."""
SETTINGS = {TRIM_THRESHOLD: 256 << 20, TOP_PAD: 64 << 20, MMAP_THRESHOLD: 32 << 20}
DECIDED = ("MALLOC_", "GLIBC_TUNABLES")
"""What the names of variables begin with by which users tell glibc's malloc themselves."""


@cache
def keep_memory() -> bool:
    """Whether the C library could be told to keep what is freed, up to some hundred megabytes.

    Each call of a kernel takes memory for its results and its scratch, and each step of a search
    for its arrays.  glibc may give it back to the system when it is freed, which clears each page
    anew when it is touched again: a page of 4 KB costs as much as some ten thousand multiply-adds.

    It holds for all of the process, and is left to users who have told malloc something already.
    """
    if any(name.startswith(DECIDED) for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    return all([mallopt(name, value) for name, value in SETTINGS.items()])

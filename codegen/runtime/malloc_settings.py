"""Memory that arrays leave behind stays with the process for the arrays that come next."""

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
"""Numbers of `mallopt`'s parameters, by glibc's malloc.h."""
SETTINGS = {TRIM_THRESHOLD: 256 << 20, TOP_PAD: 1 << 20}
"""Bytes: of free memory that stays at the end of a heap, and that are asked of the system beside
each need; a pad as large as a thread's heap, 64 MiB, would keep heaps that are empty."""
MAPPED_APART = (256 << 20, 32 << 20)
"""Bytes from which on arrays are mapped apart, always anew.  The first that glibc takes holds: one
older than 2.35 takes 32 MiB at most."""

KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(1 << 40), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""Variables of a process that is begun for timing alone: it keeps everything.  Kernels inside a
network find their memory there too; by themselves, up to half of a small one's time were faults."""


@cache
def keep_memory() -> bool:
    """Whether the C library could be told to keep what is freed, up to 256 MB of each heap.

    Each call of a kernel takes memory for its results and its scratch, and each step of a search
    for its arrays.  glibc may give it back to the system when it is freed, which clears each page
    anew when it is touched again: a page of 4 KB costs as much as some 20,000 multiply-adds.

    It holds for all of the process, and is left to users who have told malloc something already.
    """
    if _is_decided():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    apart = any(mallopt(MMAP_THRESHOLD, size) for size in MAPPED_APART)
    return apart and all([mallopt(name, value) for name, value in SETTINGS.items()])


def give_back() -> None:
    """Gives what is free of all heaps back to the system, whatever malloc was told to keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _is_decided() -> bool:
    """Whether the user has told glibc's malloc something by variables."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name.startswith("MALLOC_") for name in os.environ)

"""The calling convention of kernels, as structures of C.

    struct Call { void** args; void** results; void* scratch; const Host* host; }
    struct Host { void (*parallel_for)(const Host*, int64 n, Body, void* data); int32 threads; ... }
    void Body(void* data, int64 begin, int64 end, int64 slot)

`dispatcher.ll` says the same for calls that come from XLA.
"""

import ctypes

TARGET = "hlotune_call"
"""What XLA knows our kernels by.  A call takes no notice of operands behind those of its kernel."""


class Call(ctypes.Structure):
    """What a kernel gets: addresses of its arguments and results, of its scratch, and its host."""

    _fields_ = (
        ("args", ctypes.c_void_p),
        ("results", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
    )


class HostHead(ctypes.Structure):
    """The part of a host that kernels see, and a pointer for the host itself."""

    _fields_ = (
        ("parallel_for", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        ("state", ctypes.c_void_p),
    )


ARGUMENTS, RESULTS, SCRATCH, HOST = (int(getattr(Call, name).offset) for name, _ in Call._fields_)
"""Bytes from the start of a Call to each of its pointers."""

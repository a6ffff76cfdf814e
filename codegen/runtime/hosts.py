"""Hosts for calls outside XLA: how parallel loops run when a test or the verifier calls a kernel.

`serial` is what a pool of one thread does.  `shuffled` is serial too, but takes many small ranges
in random order with random slots, so that a kernel whose result depends on order, range or slot
shows it at once and reproducibly.  `threaded` runs the contiguous ranges of XLA's pool on threads
of its own, started anew in every loop: for checking only, never for timing.  The code is in
`hosts.ll`.
"""

import ctypes
from functools import cache
from pathlib import Path

from hlotune.codegen.llvm.compile import compile_for_process
from hlotune.codegen.runtime.loader import Host, Library


def serial() -> Host:
    """The whole loop as one range on the calling thread, slot 0."""
    return _host("serial", 1)


def shuffled(seed: int, slots: int) -> Host:
    """Ranges of 1 to 3 in random order on the calling thread, each with a random slot.

    The order differs from loop to loop, and is the same for the same seed and sequence of loops.
    """
    return _host("shuffled", slots, seed)


def threaded(threads: int) -> Host:
    """One contiguous range on each of `threads` threads, the calling one among them."""
    return _host("threaded", threads)


def _host(name: str, threads: int, state: int = 0) -> Host:
    if threads < 1:
        raise ValueError(f"expected at least one thread or slot, got {threads}; ask for 1 or more")
    return Host(_library().address(name), threads, ctypes.c_uint64(state))


@cache
def _library() -> Library:
    text = Path(__file__).with_name("hosts.ll").read_text(encoding="utf-8")
    return Library(compile_for_process(text, "hosts"), ("serial", "shuffled", "threaded"), "hosts")

"""Races of tasks, found without luck: two threads that write one byte, seen on one thread.

Tasks of a loop may run at the same time, so no thread may write what another writes.  Here each
loop runs in halves, one behind the other, each with a slot of its own, and what both of them
changed is counted.  On two threads the same kernel may be right a thousand times.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.runtime.loader import Host
from hlotune.schedules.errors import WrongResult

_LOOP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
Body = Callable[[int, int, int, int], None]
"""A body of tasks, called with its data, the range of its tasks, and its slot."""
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class InHalves:
    """Stands for the host of a call until its buffers are there."""

    most_bytes: int
    """The bytes to copy in all loops of the call together."""


class Halves:
    """A host of two slots on the calling thread, and what the tasks of both have changed.

    It must live as long as its host is used.

    Args:
        watched: buffers whose sizes are multiples of 8.
        most_bytes: of them, over all loops of a call; the smaller ones go first, and what comes
            after that is left to threads, which meet in what takes long.
    """

    def __init__(self, watched: Sequence[Bytes], most_bytes: int) -> None:
        self._watched = sorted((w.view(np.uint64) for w in watched), key=lambda w: w.size)
        self._left_bytes = most_bytes
        self._loop = _LOOP(self._run)
        self._error: BaseException | None = None
        self._shared_bytes = 0

    @property
    def host(self) -> Host:
        address = ctypes.cast(self._loop, ctypes.c_void_p).value
        assert address is not None, "a function has an address"
        return Host(address, 2, ctypes.c_uint64(0))

    def check(self) -> None:
        """Raises WrongResult for bytes that tasks of both slots changed in one loop."""
        if self._error is not None:
            raise self._error
        if self._shared_bytes:
            raise WrongResult(
                "expected no byte of results and scratch to be written by the tasks of two "
                f"threads, got {self._shared_bytes}; tasks of this schedule share memory"
            )

    def _run(self, _: int, n: int, body: int, data: int) -> None:
        try:
            self._run_in_halves(n, _BODY(body), data)
        except BaseException as error:  # a kernel hands no exception on: `check` does
            self._error = error

    def _run_in_halves(self, n: int, body: Body, data: int) -> None:
        middle = (n + 1) // 2
        watched = list(self._affordable()) if n > middle else []
        before = [w.copy() for w in watched]
        if n > 0:
            body(data, 0, middle, 0)
        parts = [_changed(old, new) for old, new in zip(before, watched, strict=True)]
        between = [w[part].copy() for w, part in zip(watched, parts, strict=True)]
        if n > middle:
            body(data, middle, n, 1)
        for old, new, last, part in zip(before, between, watched, parts, strict=True):
            self._shared_bytes += _twice_changed(old[part], new, last[part])

    def _affordable(self) -> Iterator[Words]:
        for words in self._watched:
            if words.nbytes <= self._left_bytes:
                self._left_bytes -= words.nbytes
                yield words


def _changed(old: Words, new: Words) -> slice:
    """The words from the first that differs to the last."""
    differs = old != new
    first, behind = int(differs.argmax()), int(differs[::-1].argmax())
    return slice(first, differs.size - behind) if differs[first] else slice(0, 0)


def _twice_changed(old: Words, new: Words, last: Words) -> int:
    """Bytes; they are looked at where whole words say that there are some."""
    places = (old != new) & (new != last)
    if not places.any():
        return 0
    first, second, third = (x[places].view(np.uint8) for x in (old, new, last))
    return int(np.count_nonzero((first != second) & (second != third)))

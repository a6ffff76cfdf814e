"""The packed forms of a kernel's constants, as its own entries make them."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.built import Packed
from hlotune.codegen.runtime.loader import Host, Loaded
from hlotune.schedules.errors import WrongResult

ALIGNMENT = 64
MOST_WATCHED_BYTES = 64 << 20
"""A larger constant is packed in place where nobody can write to it; a smaller one is packed from a
copy between guards, so that writes beside it are noticed.
"""


class Buffer(Protocol):
    """Memory that a kernel is called on."""

    @property
    def data(self) -> NDArray[np.uint8]: ...

    @property
    def address(self) -> int: ...

    @property
    def intact(self) -> bool:
        """Whether nobody is seen to have written beside it."""
        ...


class Plain:
    """Memory of so many bytes, aligned to 64, in which nothing is watched."""

    def __init__(self, size: int) -> None:
        memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self.data: NDArray[np.uint8] = memory[start : start + size]
        self.intact = True

    @staticmethod
    def over(content: NDArray[np.uint8]) -> "Plain":
        """The memory of an array itself."""
        buffer = Plain(0)
        buffer.data = content
        return buffer

    @staticmethod
    def of(content: NDArray[np.uint8]) -> "Plain":
        buffer = Plain(content.size)
        buffer.data[...] = content
        return buffer

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


def prepack(
    loaded: Loaded,
    values: Mapping[int, NDArray[Any]],
    host: Host,
    buffer: Callable[[int], Buffer] = Plain,
    stacks: Collection[int] = (),
    room: Callable[[int], Buffer] | None = None,
) -> dict[int, NDArray[np.uint8]]:
    """Position of a constant argument -> bytes of its packed form, in memory that `room` gives.

    Args:
        values: of the arguments by position; those that are packed must be there.
        buffer: gives memory for values that are copied first, and where `room` does not, for
            packed forms.
        stacks: positions of arguments whose values have several parts along a first axis: the
            packed forms of these follow one another, each `part_bytes` after the one before.

    Raises WrongResult where an entry fails or writes outside of what it was given.
    """
    packed: dict[int, NDArray[np.uint8]] = {}
    room = room or buffer
    for form in loaded.built.packed:
        value = values[form.argument]
        if form.argument in stacks:
            whole = room(len(value) * part_bytes(form.bytes)).data
            parts = whole.reshape(len(value), -1)
            parts[:, form.bytes :] = 0
            for part, one in zip(parts, value, strict=True):
                part[: form.bytes] = _packed(loaded, form, one, host, buffer, buffer)
            packed[form.argument] = whole
        else:
            packed[form.argument] = _packed(loaded, form, value, host, buffer, room)
    return packed


def part_bytes(form_bytes: int) -> int:
    """How far one packed form of a stack begins behind the one before, in bytes."""
    return -(-form_bytes // ALIGNMENT) * ALIGNMENT


def _packed(
    loaded: Loaded,
    form: Packed,
    values: NDArray[Any],
    host: Host,
    buffer: Callable[[int], Buffer],
    room: Callable[[int], Buffer],
) -> NDArray[np.uint8]:
    source = _source(values, buffer)
    target = room(form.bytes)
    status = loaded.call(form.entry, [source.address], [target.address], 0, host)
    if status or not (source.intact and target.intact):
        raise WrongResult(
            f"expected {form.entry} to pack argument {form.argument} into {form.bytes} bytes, "
            f"got status {status} or a write beside its buffers; mend this schedule's packing"
        )
    return target.data


def _source(values: NDArray[Any], buffer: Callable[[int], Buffer]) -> Buffer:
    """The bytes of a constant: its own memory where that is aligned, and nothing is watched, or it
    is large and nobody can write to it."""
    plain = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    is_safe = not values.flags.writeable and values.nbytes > MOST_WATCHED_BYTES
    if (buffer is Plain or is_safe) and plain.ctypes.data % ALIGNMENT == 0:
        return Plain.over(plain)
    copy = buffer(values.nbytes)
    copy.data[...] = plain
    return copy

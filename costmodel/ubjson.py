"""Universal Binary JSON as xgboost writes it: lengths are 64 bits wide, numbers big-endian.

Only the markers that xgboost writes are read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.files import Damaged

Value = str | bool | float | NDArray[Any] | list[Any] | dict[str, Any] | None
_NUMBERS = {"U": ">u1", "i": ">i1", "I": ">i2", "l": ">i4", "L": ">i8", "d": ">f4", "D": ">f8"}
_CONSTANTS = {"T": True, "F": False, "Z": None}


def decoded(data: bytes) -> Value:
    """The value that the bytes are, all of them; lists of numbers are arrays.

    Raises:
        Damaged: the bytes are something else.
    """
    reader = _Reader(data)
    value = reader.value(reader.marker())
    if reader.place != len(data):
        raise Damaged(f"{len(data) - reader.place} bytes after the end of a booster")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def taken(self, count: int) -> bytes:
        part = self.data[self.place : self.place + count]
        if count < 0 or len(part) < count:
            raise Damaged(f"a booster that ends {count - len(part)} bytes too early")
        self.place += count
        return part

    def marker(self) -> str:
        return self.taken(1).decode("latin-1")

    def numbers(self, marker: str, count: int) -> NDArray[Any]:
        if marker not in _NUMBERS:
            raise Damaged(f"a booster with the marker {marker!r}")
        kind = np.dtype(_NUMBERS[marker])
        return np.frombuffer(self.taken(count * kind.itemsize), kind)

    def length(self) -> int:
        if self.marker() != "L":
            raise Damaged("a booster without a length")
        return int.from_bytes(self.taken(8), "big", signed=True)

    def text(self) -> str:
        return self.taken(self.length()).decode()

    def value(self, marker: str) -> Value:
        if marker == "{":
            return self.object()
        if marker == "[":
            return self.list()
        if marker == "S":
            return self.text()
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        number: float = self.numbers(marker, 1)[0].item()
        return number

    def object(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        while self.data[self.place : self.place + 1] != b"}":
            key = self.text()
            if key in found:
                raise Damaged(f"a booster with two of {key!r}")
            found[key] = self.value(self.marker())
        self.place += 1
        return found

    def list(self) -> NDArray[Any] | list[Value]:
        marker = self.marker()
        if marker == "$":
            kind = self.marker()
            self._expect("#")
            return self.numbers(kind, self.length())
        if marker != "#":
            raise Damaged("a booster with a list without a length")
        return [self.value(self.marker()) for _ in range(self.length())]

    def _expect(self, marker: str) -> None:
        if (found := self.marker()) != marker:
            raise Damaged(f"a booster with {found!r} in the place of {marker!r}")

"""A kernel as code of one backend, with what a caller must know to run it.

It is data: it crosses from the process that builds to the one that measures, and is stored.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import cast

from hlotune.schedules.errors import BuildError

_MAGIC = b"hlotune.built.1"


@dataclass(frozen=True)
class Packed:
    """A constant argument that the kernel takes in a packed form of `bytes` bytes.

    `entry` names the function that packs: `args[0]` the values, `results[0]` the packed form.
    """

    argument: int
    bytes: int
    entry: str


@dataclass(frozen=True)
class Built:
    """The code of a kernel, tagged with the backend that made it and can load it.

    Of machine code the function `kernel` runs the kernel, and `packed[i].entry` packs a constant.
    """

    object: bytes
    """An object file of the backend `llvm`; of others what these make of a schedule."""
    scratch_bytes: int
    packed: tuple[Packed, ...]
    flops: int
    """Operations that one call has to execute: none on padding or inserted zeros."""
    threads: int
    """Slots for which scratch is laid out: a host may run at most so many bodies at once."""
    algorithm: str = field(default="direct", kw_only=True)
    """The algorithm of the schedule, which says which rounding errors are legitimate."""
    tiles: bool = field(default=False, kw_only=True)
    """Whether it uses a matrix unit, for which a process must ask the system."""
    in_place: tuple[tuple[int, int], ...] = field(default=(), kw_only=True)
    """Results that may be written over arguments, as (result, argument)."""
    backend: str = field(default="llvm", kw_only=True)
    """The name of its backend in the table of `backends.py`."""

    @cached_property
    def key(self) -> str:
        """Hash of the code: 32 hex digits."""
        return hashlib.sha256(self.object).hexdigest()[:32]

    def to_bytes(self) -> bytes:
        """Three parts, a line each but the last: magic, JSON of all but the object, the object."""
        header = {
            "scratch_bytes": self.scratch_bytes,
            "packed": [asdict(p) for p in self.packed],
            "flops": self.flops,
            "threads": self.threads,
            "algorithm": self.algorithm,
            "object_bytes": len(self.object),
            **({"tiles": True} if self.tiles else {}),
            **({"in_place": self.in_place} if self.in_place else {}),
            **({"backend": self.backend} if self.backend != "llvm" else {}),
        }
        return b"\n".join((_MAGIC, json.dumps(header).encode(), self.object))

    def check(self) -> None:
        """Raises ValueError where a field has another type or range than `build` gives it."""
        counts = {"scratch_bytes": self.scratch_bytes, "flops": self.flops}
        for n, p in enumerate(self.packed):
            counts |= {f"packed[{n}].argument": p.argument, f"packed[{n}].bytes": p.bytes}
            _require(isinstance(p.entry, str), f"packed[{n}].entry", "a text", p.entry)
        for name, count in counts.items():
            _require(type(count) is int and count >= 0, name, "a number, 0 or more", count)
        threads = type(self.threads) is int and self.threads >= 1
        _require(threads, "threads", "a number, 1 or more", self.threads)
        _require(isinstance(self.algorithm, str), "algorithm", "a text", self.algorithm)
        _require(isinstance(self.backend, str), "backend", "a text", self.backend)
        _require(isinstance(self.tiles, bool), "tiles", "true or false", self.tiles)
        pairs = isinstance(self.in_place, tuple) and all(map(_is_pair, self.in_place))
        _require(pairs, "in_place", "pairs of numbers, 0 or more", self.in_place)
        positions = [p.argument for p in self.packed]
        once = len(set(positions)) == len(positions)
        _require(once, "packed", "one form of each argument", positions)

    @staticmethod
    def from_bytes(data: bytes) -> "Built":
        """Raises BuildError where the bytes are not those of `to_bytes`, or were cut short."""
        magic, _, rest = data.partition(b"\n")
        header, _, machine_code = rest.partition(b"\n")
        try:
            if magic != _MAGIC:
                raise ValueError(f"it starts with {data[:16]!r}")
            values = json.loads(header)
            if values.pop("object_bytes") != len(machine_code):
                raise ValueError(f"its object has {len(machine_code)} bytes")
            packed = tuple(Packed(**p) for p in values.pop("packed"))
            in_place = tuple(map(tuple, values.pop("in_place", ())))
            built = Built(object=machine_code, packed=packed, in_place=in_place, **values)
            built.check()
            return built
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise BuildError(
                f"expected a kernel stored by this version ({_MAGIC.decode()}), "
                f"got {len(data)} bytes that are none ({error}); build the kernel again"
            ) from error


def _is_pair(value: object) -> bool:
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and all(type(n) is int and n >= 0 for n in cast(tuple[object, ...], value))


def _require(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise ValueError(f"its {name} should be {what}, and is {repr(value)[:60]}")

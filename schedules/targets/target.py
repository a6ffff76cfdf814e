"""A device as a tuner sees it: identity (hashed), properties (measured), toolchain (versions).

This file has what targets of all kinds share.  `cpu.py`, `gpu.py` and `tpu.py` add what a kind has,
and `kinds.py` has the table of kinds.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from hlotune.schedules.errors import TargetError
from hlotune.schedules.numerics import Numerics

F32Operands = Literal["f32", "tf32"]
"""As they are, or with 10 explicit bits of the mantissa."""
Kind = str
"""The name of a kind of target, as in the table of `kinds.py`: `cpu`, `gpu`, `tpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a schedule may depend on; its hash is the fingerprint under which times are kept."""

    kind: Kind
    name: str
    """Vendor's name of the device, or ours."""

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> Self:
        """The target with this `identity`, as JSON has it.

        Raises KeyError or TypeError where its fields are others.
        """
        return cls(**identity)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that tell devices apart, as JSON values; none of them is measured."""
        return asdict(self)

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name

    @property
    def platform(self) -> str:
        """What JAX calls the platform of the device: programs are lowered and compiled for it.

        Raises TargetError where JAX has none.
        """
        raise TargetError(f"expected a device that JAX drives, got {self.title}")

    def as_found(self, device: str) -> "Target | None":
        """This target as the device that JAX calls so; None where that is another one."""
        return None

    @property
    def peaks(self) -> "Properties | None":
        """The maker's rates; None where they are measured on the device."""
        return None

    @property
    def host_threads(self) -> int:
        """Threads of the host that compute; 1 where another device does.

        Times of different numbers of threads are never compared.
        """
        return 1

    @property
    def stand_ins(self) -> dict[str, str]:
        """Element types without arithmetic of their own, and those that they are computed in."""
        return {}

    def f32_operands(self, numerics: Numerics) -> F32Operands:
        """What f32 operands of products may be rounded to, where the program leaves that to the
        device: to what XLA itself rounds them there, unless numerics are strict.
        """
        return "f32"

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits: a hash of the identity, whatever schema it is stored in."""
        text = json.dumps(self.identity, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Properties:
    """What was measured on a target; recorded, never hashed.

    Peaks are for all threads of the target.
    """

    flops_per_s: dict[str, float]
    """Multiply-add peak by the operands' element type, two operations each."""
    read_bytes_per_s: float
    clock_hz: float

    def best_of(self, other: "Properties") -> "Properties":
        """The larger of each: a peak is what the machine can do, and some minutes are bad."""
        types = self.flops_per_s.keys() | other.flops_per_s.keys()
        both = self.flops_per_s, other.flops_per_s
        return Properties(
            flops_per_s={t: max(p.get(t, 0.0) for p in both) for t in sorted(types)},
            read_bytes_per_s=max(self.read_bytes_per_s, other.read_bytes_per_s),
            clock_hz=max(self.clock_hz, other.clock_hz),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """Versions that change what a schedule compiles to."""

    jaxlib: str
    llvm: str
    codegen: str
    xla_flags: str

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

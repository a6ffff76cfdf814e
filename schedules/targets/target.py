"""A device as a tuner sees it: identity (hashed), properties (measured), toolchain (versions)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Kind = Literal["cpu", "gpu", "tpu"]
WAY_BYTES = 4096
"""Addresses this far apart share a set of the first cache, on all processors of today."""
LINE_BYTES = 64
"""Of a cache line, on every processor that we know."""
MULTIPLY_ADDS = 2
"""Of full vectors, that a core begins in a cycle."""
HALVES = ("znver4",)
"""Cores that take a vector of 64 bytes in two halves, by their makers' optimization guides."""
LATENCY = 4
"""Cycles until a sum can be added to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a schedule may depend on; its hash is the fingerprint under which times are kept."""

    kind: Kind
    name: str
    """Vendor's name of the device."""
    triple: str
    """LLVM triple, `x86_64-unknown-linux-gnu`."""
    isa: str
    """LLVM's name of the processor, `znver5`."""
    features: tuple[str, ...]
    """LLVM features that are on, sorted, without the plus sign."""
    cores: int
    threads: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> Self:
        """From its fields as JSON has them.  Raises KeyError or TypeError where they are others."""
        return cls(**{**identity, "features": tuple(identity["features"])})

    @property
    def title(self) -> str:
        """For people."""
        return titled(self.name, self.isa)

    @property
    def fingerprint(self) -> str:
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def vector_bytes(self) -> int:
        """Bytes of a vector register: 64 with AVX-512, 32 with AVX, else 16."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else 16

    @property
    def caches_bytes(self) -> tuple[int, int, int]:
        """The data caches that serve one core, the nearest first."""
        return self.l1_bytes, self.l2_bytes, self.l3_bytes

    @property
    def vector_registers(self) -> int:
        return 32 if "avx512f" in self.features or self.triple.startswith("aarch64") else 16

    @property
    def multiply_adds(self) -> int:
        """Of full vectors, that a core begins in a cycle; documented, not measured."""
        halves = self.isa in HALVES and self.vector_bytes == 64
        return MULTIPLY_ADDS // 2 if halves else MULTIPLY_ADDS

    @property
    def chains(self) -> int:
        """Independent multiply-adds that keep the units busy."""
        return LATENCY * self.multiply_adds


def titled(name: str, isa: str | None) -> str:
    """The vendor's name with LLVM's: one name of a vendor may mean several kinds of core."""
    return f"{name} ({isa})" if isa and isa != name else name


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

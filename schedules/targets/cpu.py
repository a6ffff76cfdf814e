"""CPUs as targets: what a schedule may depend on, and what follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from hlotune.schedules.targets.machine_rates import MachineRates, rates_of
from hlotune.schedules.targets.target import Kind, Target

HOST_PLATFORM = "cpu"
"""What JAX calls the processors of the machine that it runs on."""
WAY_BYTES = 4096
"""Addresses this far apart share a set of the first cache, on all processors of today."""
LINE_BYTES = 64
"""The size of a cache line, on every processor that we know."""
HALVES = ("znver4",)
"""Cores that take a vector of 64 bytes in two halves, by their makers' optimization guides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget(Target):
    """A processor and the threads that kernels may use on it; `name` is its vendor's."""

    kind: Kind = "cpu"
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
        return cls(**{**identity, "features": tuple(identity["features"])})

    @property
    def title(self) -> str:
        """The vendor's name with LLVM's."""
        return titled(self.name, self.isa)

    @property
    def platform(self) -> str:
        return HOST_PLATFORM

    @property
    def host_threads(self) -> int:
        return self.threads

    @property
    def stand_ins(self) -> dict[str, str]:
        return {} if {"avx512fp16", "fullfp16"} & set(self.features) else {"f16": "f32"}

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
    def has_few_registers(self) -> bool:
        """Whether it has fewer vector registers than the 32 of AVX-512 and aarch64: what was
        measured with 16 holds for it."""
        return self.vector_registers < 32

    @property
    def has_wide_vectors(self) -> bool:
        """Whether vectors have 64 bytes, as with AVX-512: what was measured with shorter ones holds
        for all others.

        Rules that ask for it may be of caches and lines, not of vectors: they were measured on one
        processor with AVX-512, a Zen 4, and hold for its relatives as far as these are alike.
        """
        return self.vector_bytes >= 64

    @property
    def rates(self) -> MachineRates:
        """What its cores take and give in a cycle, as far as kinds of core differ; not measured."""
        return rates_of(self.isa)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of full vectors that a core begins in a cycle; documented, not measured."""
        return self.rates.multiply_adds // (1 + self.takes_halves)

    @property
    def takes_halves(self) -> bool:
        """Whether a vector register takes its units twice as long as half of one."""
        return self.isa in HALVES and self.vector_bytes == 64

    @property
    def chains(self) -> int:
        """Independent multiply-adds that keep the units busy."""
        return self.rates.add_latency * self.multiply_adds


def titled(name: str, isa: str | None) -> str:
    """The vendor's name with LLVM's: one name of a vendor may mean several kinds of core."""
    return f"{name} ({isa})" if isa and isa != name else name

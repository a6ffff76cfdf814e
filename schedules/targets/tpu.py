"""TPUs by name, present or not: what a schedule for one may use, and how fast it can be at best."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.target import Kind, Properties, Target

TPU_PLATFORM = "tpu"
"""What JAX calls the platform."""
MIB, GIB = 1 << 20, 1 << 30
SUBLANES, LANES = 8, 128
"""The shape of a vector register of 32-bit elements, and of the tiles that arrays lie in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TpuTarget(Target):
    """A TPU chip's limits and peaks.  Rates are the maker's figures."""

    kind: Kind = "tpu"
    devices: tuple[str, ...]
    """What JAX calls it."""
    cores: int
    """TensorCores of a chip."""
    vmem_bytes: int
    """Vector memory of one core, in which blocks must lie while they are computed with."""
    mxu_units: int
    """Matrix units of a core."""
    mxu_extent: int
    """Rows and columns of a matrix unit."""
    memory_bytes: int
    memory_bytes_per_s: float
    clock_hz: float
    flops_per_s: Mapping[str, float] = field(hash=False)
    """Dense peak by the operands' type; f32 is the rate of products that take several passes."""

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> "TpuTarget":
        """The chip of that name.  Raises TypeError where its identity is another one."""
        found = TPU_TARGETS.get(identity["name"])
        if found is None or found.identity != dict(identity):
            raise TypeError(f"no TPU of this version has the identity {dict(identity)!r:.120}")
        return found

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "cores": self.cores,
            "vmem_bytes": self.vmem_bytes,
            "mxu_units": self.mxu_units,
            "mxu_extent": self.mxu_extent,
            "memory_bytes": self.memory_bytes,
        }

    @property
    def platform(self) -> str:
        return TPU_PLATFORM

    def as_found(self, device: str) -> "TpuTarget | None":
        return self if device in self.devices else None

    @property
    def peaks(self) -> Properties:
        return Properties(
            flops_per_s=dict(self.flops_per_s),
            read_bytes_per_s=self.memory_bytes_per_s,
            clock_hz=self.clock_hz,
        )

    def takes_block(self, rows: int, columns: int, element_bytes: int) -> bool:
        """Whether the last two extents of a block are whole tiles of the memory.

        A tile has 8 rows of 128 lanes for elements of 4 bytes; narrower elements are packed along
        the rows, so that a tile of bf16 has 16 of them and one of bytes 32.
        """
        return rows % tile_rows(element_bytes) == 0 and columns % LANES == 0


def tile_rows(element_bytes: int) -> int:
    """Rows of a tile of the memory, for elements of 1, 2 or 4 bytes."""
    return SUBLANES * 4 // element_bytes


_V5E = TpuTarget(
    name="tpu:v5e",
    devices=("TPU v5 lite", "TPU v5e"),
    cores=1,
    vmem_bytes=128 * MIB,
    mxu_units=4,
    mxu_extent=128,
    memory_bytes=16 * GIB,
    memory_bytes_per_s=819e9,
    clock_hz=1.5e9,
    flops_per_s={"bf16": 197e12, "f32": 197e12 / 6, "i8": 394e12},
)
_V6E = TpuTarget(
    name="tpu:v6e",
    devices=("TPU v6 lite", "TPU v6e"),
    cores=1,
    vmem_bytes=128 * MIB,
    mxu_units=2,
    mxu_extent=256,
    memory_bytes=32 * GIB,
    memory_bytes_per_s=1640e9,
    clock_hz=1.75e9,
    flops_per_s={"bf16": 918e12, "f32": 918e12 / 6, "i8": 1836e12},
)

TPU_TARGETS: dict[str, TpuTarget] = {t.name: t for t in (_V5E, _V6E)}


def tpu_target(name: str) -> TpuTarget:
    """The target of that name.

    Raises:
        TargetError: where no such target is known.
    """
    if name not in TPU_TARGETS:
        known = ", ".join(TPU_TARGETS)
        raise TargetError(f"no TPU is called {name!r}: expected one of {known}")
    return TPU_TARGETS[name]

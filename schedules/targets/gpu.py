"""GPUs by name, present or not: what a schedule for one may use, and how fast it can be at best."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hlotune.schedules.errors import TargetError
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import F32Operands, Kind, Properties, Target

KIB = 1024
MEASURED = ("memory_bytes_per_s", "l2_bytes_per_s", "flops_per_s", "clock_hz", "launch_s")
"""Fields of a target that measuring may replace: they are no part of its identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget(Target):
    """A GPU's limits and peaks; `name` is ours, `cuda:h100`.

    Rates are the maker's figures until `measured` replaces them by what a device was seen to do.
    """

    kind: Kind = "gpu"
    device: str
    """The maker's name, as the driver reports it."""
    capability: tuple[int, int]
    """CUDA's compute capability, major and minor."""
    multiprocessors: int
    shared_bytes: int
    """Shared memory of one multiprocessor."""
    block_shared_bytes: int
    """Shared memory that one block of threads may ask for."""
    registers: int
    """Registers of 32 bits of one multiprocessor."""
    thread_registers: int
    """Registers that one thread may have."""
    threads: int
    """Threads that one multiprocessor holds."""
    l2_bytes: int
    memory_bytes: int
    memory_bytes_per_s: float
    l2_bytes_per_s: float
    flops_per_s: Mapping[str, float] = field(hash=False)
    """Dense peak by the operands' type; `tf32` is f32 operands rounded by the matrix unit."""
    clock_hz: float
    launch_s: float
    """The time from the end of one kernel to the start of the next in a stream."""

    @classmethod
    def of(cls, identity: Mapping[str, Any]) -> "GpuTarget":
        """The target of an identity, with the maker's rates.  TypeError says that none is known."""
        known = GPU_TARGETS.get(identity["name"])
        if known is None:
            raise TypeError(f"no GPU of this version is called {identity['name']!r}")
        return replace(known, **{**identity, "capability": tuple(identity["capability"])})

    @property
    def identity(self) -> dict[str, Any]:
        values = {k: v for k, v in asdict(self).items() if k not in MEASURED}
        return {**values, "capability": list(self.capability)}

    @property
    def title(self) -> str:
        return self.device

    @property
    def platform(self) -> str:
        return "cuda"

    def as_found(self, device: str) -> "GpuTarget | None":
        is_this = self.name.removeprefix("cuda:") in device.lower()
        return replace(self, device=device) if is_this else None

    def f32_operands(self, numerics: Numerics) -> F32Operands:
        return "tf32" if numerics != "strict" and "tf32" in self.flops_per_s else "f32"

    @property
    def peaks(self) -> Properties:
        return Properties(
            flops_per_s=dict(self.flops_per_s),
            read_bytes_per_s=self.memory_bytes_per_s,
            clock_hz=self.clock_hz,
        )

    @property
    def architecture(self) -> str:
        """`sm_90`, as compilers name it."""
        return "sm_{}{}".format(*self.capability)

    @property
    def warpgroup_products(self) -> bool:
        """Whether four warps multiply together out of shared memory (`wgmma`), as Hopper does."""
        return self.capability == (9, 0)

    def measured(self, memory_bytes_per_s: float, flops_per_s: Mapping[str, float]) -> "GpuTarget":
        """The same target with rates that were measured, where they were."""
        return replace(
            self,
            memory_bytes_per_s=memory_bytes_per_s,
            flops_per_s={**self.flops_per_s, **flops_per_s},
        )


_HOPPER_PEAKS = {
    "f64": 67e12,
    "f32": 67e12,
    "tf32": 494e12,
    "f16": 989e12,
    "bf16": 989e12,
    "i8": 1979e12,
}
_AMPERE_PEAKS = {
    "f64": 19.5e12,
    "f32": 19.5e12,
    "tf32": 156e12,
    "f16": 312e12,
    "bf16": 312e12,
    "i8": 624e12,
}

_H100 = GpuTarget(
    name="cuda:h100",
    device="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    multiprocessors=132,
    shared_bytes=228 * KIB,
    block_shared_bytes=227 * KIB,
    registers=65536,
    thread_registers=255,
    threads=2048,
    l2_bytes=50 * KIB**2,
    memory_bytes=80 * KIB**3,
    memory_bytes_per_s=3.35e12,
    l2_bytes_per_s=5.5e12,
    flops_per_s=_HOPPER_PEAKS,
    clock_hz=1.98e9,
    launch_s=1.5e-6,
)
_H200 = replace(
    _H100,
    name="cuda:h200",
    device="NVIDIA H200",
    memory_bytes=141 * 10**9,
    memory_bytes_per_s=4.8e12,
    l2_bytes=60 * KIB**2,
)
_A100 = GpuTarget(
    name="cuda:a100",
    device="NVIDIA A100-SXM4-80GB",
    capability=(8, 0),
    multiprocessors=108,
    shared_bytes=164 * KIB,
    block_shared_bytes=163 * KIB,
    registers=65536,
    thread_registers=255,
    threads=2048,
    l2_bytes=40 * KIB**2,
    memory_bytes=80 * KIB**3,
    memory_bytes_per_s=2.04e12,
    l2_bytes_per_s=4.0e12,
    flops_per_s=_AMPERE_PEAKS,
    clock_hz=1.41e9,
    launch_s=2e-6,
)

GPU_TARGETS: dict[str, GpuTarget] = {t.name: t for t in (_A100, _H100, _H200)}


def gpu_target(name: str) -> GpuTarget:
    """The target of that name.

    Raises:
        TargetError: where no such target is known.
    """
    if name not in GPU_TARGETS:
        known = ", ".join(GPU_TARGETS)
        raise TargetError(f"no GPU is called {name!r}: expected one of {known}")
    return GPU_TARGETS[name]


def gpu_target_of(title: str) -> GpuTarget:
    """The target of the device that the driver reports under this name.

    Raises:
        TargetError: where the device is none of those that are known.
    """
    for target in GPU_TARGETS.values():
        if found := target.as_found(title):
            return found
    known = ", ".join(t.title for t in GPU_TARGETS.values())
    raise TargetError(f"the device is {title!r}: expected one of {known}")

"""Targets: this machine as it is found, and named machines for tests and cross builds."""

import os
import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from hlotune.codegen import host_processor
from hlotune.codegen.runtime.amx_permission import refusal
from hlotune.codegen.version import CODEGEN_VERSION
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Toolchain

_SYSTEM = Path("/sys/devices/system/cpu")
_UNKNOWN_CACHES = {1: 32 << 10, 2: 1 << 20, 3: 8 << 20}
"""Bytes assumed, by level, where the system says nothing."""

_AVX2 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse", "sse2")
UNIT = "amx-"
"""How features of a matrix unit begin."""
_AVX512 = (*_AVX2, "avx512bf16", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_AMX = (*_AVX512, "amx-bf16", "amx-int8", "amx-tile", "avx512vnni")


def _named(name: str, triple: str, isa: str, features: tuple[str, ...]) -> CpuTarget:
    return CpuTarget(
        name=name,
        triple=triple,
        isa=isa,
        features=tuple(sorted(features)),
        cores=2,
        threads=2,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=32 << 20,
    )


TARGETS: dict[str, CpuTarget] = {
    t.name: t
    for t in (
        _named("x86-64", "x86_64-unknown-linux-gnu", "x86-64", ("sse", "sse2")),
        _named("x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", _AVX2),
        _named("znver4", "x86_64-unknown-linux-gnu", "znver4", _AVX512),
        _named("sapphirerapids", "x86_64-unknown-linux-gnu", "sapphirerapids", _AMX),
        _named("aarch64", "aarch64-unknown-linux-gnu", "neoverse-n1", ("fullfp16", "neon")),
    )
}
"""Fixed targets of two cores: what is built for them does not depend on the machine that builds."""


def host_target(threads: int | None = None) -> CpuTarget:
    """This machine.  `threads` defaults to the number of processors the process may use.

    Raises TargetError where more threads are asked for than there are processors, or where the
    system is not Linux: the threads of kernels sleep and are bound by its means.
    """
    if sys.platform != "linux":
        raise TargetError(
            f"expected Linux, got {sys.platform}: kernels run on no other system; run hlotune there"
        )
    usable = _usable()
    threads = len(usable) if threads is None else threads
    if not 1 <= threads <= len(usable):
        raise TargetError(
            f"expected 1 to {len(usable)} threads, the processors that this process may use, "
            f"got {threads}; ask for fewer, or widen the process's affinity"
        )
    return _host(threads, usable)


@cache
def _host(threads: int, usable: tuple[int, ...]) -> CpuTarget:
    caches = _caches(usable[0])
    isa = host_processor.core()
    return CpuTarget(
        name=_model() or isa,
        triple=host_processor.triple(),
        isa=isa,
        features=_features(),
        cores=_cores(usable[:threads]),
        threads=threads,
        l1_bytes=caches[1],
        l2_bytes=caches[2],
        l3_bytes=caches[3],
    )


def _features() -> tuple[str, ...]:
    """LLVM's features of this machine, but for a matrix unit that the system keeps from us."""
    found = list(host_processor.features())
    if any(k.startswith(UNIT) for k in found) and refusal():
        found = [k for k in found if not k.startswith(UNIT)]
    return tuple(found)


def require_host(fingerprint: str) -> CpuTarget:
    """The target of this machine with that fingerprint, whatever its number of threads.

    Raises TargetError where the fingerprint is that of another machine.
    """
    hosts = [host_target(threads) for threads in range(1, len(_usable()) + 1)]
    found = next((t for t in hosts if t.fingerprint == fingerprint), None)
    if found is None:
        names = (t.name for t in TARGETS.values() if t.fingerprint == fingerprint)
        known = f"{next(names, 'another')}, fingerprint {fingerprint}"
        raise TargetError(
            f"expected a target of this machine ({hosts[-1].title}, fingerprint "
            f"{hosts[-1].fingerprint} with {hosts[-1].threads} threads), got {known}; "
            "measure on the machine that has it"
        )
    return found


def toolchain() -> Toolchain:
    """The versions that decide what a schedule compiles to, in this process."""
    return Toolchain(
        jaxlib=_jaxlib_version(),
        llvm=host_processor.compiler_version(),
        codegen=CODEGEN_VERSION,
        xla_flags=xla_flags(),
    )


@cache
def _jaxlib_version() -> str:
    """Looked up once: it is read from a file, and asked for with each kernel."""
    return version("jaxlib")


def xla_flags() -> str:
    """The flags of XLA in this process's environment, whatever they change."""
    return os.environ.get("XLA_FLAGS", "")


def _usable() -> tuple[int, ...]:
    """Numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _cores(usable: tuple[int, ...]) -> int:
    """Physical cores among the processors: two hardware threads of a core count once."""
    places = {
        (_read(p / "physical_package_id") or "0", _read(p / "core_id") or str(n))
        for n, p in ((n, _SYSTEM / f"cpu{n}" / "topology") for n in usable)
    }
    return len(places)


def _model() -> str:
    """The vendor's name of the processor; empty where the system does not tell."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor()


def _caches(processor: int) -> dict[int, int]:
    """Bytes of the data caches that serve one processor, by level."""
    sizes = dict(_UNKNOWN_CACHES)
    for index in sorted((_SYSTEM / f"cpu{processor}" / "cache").glob("index[0-9]*")):
        level, size = _read(index / "level"), _read(index / "size")
        if _read(index / "type") != "Instruction" and level in "123" and size.endswith("K"):
            sizes[int(level)] = int(size[:-1]) << 10
    return sizes


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

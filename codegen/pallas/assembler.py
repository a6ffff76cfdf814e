"""What NVIDIA's assembler says of the kernels that XLA compiled: registers, and what was spilled.

XLA writes the text of its kernels (PTX) where it is told to; `ptxas -v` assembles it once more.
Kernels for Hopper are compiled apart from it, and share out their registers themselves.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hlotune.schedules.errors import BuildError
from hlotune.schedules.targets.gpu import GpuTarget

LIMIT_S = 60.0
PACKAGED = (
    "nvidia/cu*/bin/ptxas",
    "nvidia/cuda_nvcc/bin/ptxas",
    "triton/backends/nvidia/bin/ptxas",
)
"""Where packages have the assembler, in a folder of packages."""
_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True, slots=True)
class RegisterUse:
    """What one kernel takes of each thread."""

    kernel: str
    registers: int
    spilled_bytes: int
    """Bytes stored because there were no more registers, over all places of the code."""


def assembler() -> Path | None:
    """The path of `ptxas`: of packages, which know the PTX of the XLA beside them, else of the
    system, whose own may be older; None if there is none.
    """
    folders = [Path(p) for p in sys.path if p]
    packaged = (path for name in PACKAGED for f in folders for path in f.glob(name))
    found = next(packaged, None)
    system = shutil.which("ptxas")
    return found or (Path(system) if system else None)


def dumping(folder: Path) -> dict[str, str]:
    """XLA's options for a compilation that writes the text of its kernels into a folder."""
    return {"xla_dump_to": str(folder), "xla_dump_emitter_re": ".*"}


def register_use(folder: Path, target: GpuTarget, ptxas: Path) -> tuple[RegisterUse, ...]:
    """The registers of all kernels whose PTX lies in a folder, where XLA dumped it.

    Raises BuildError where the assembler refuses one.
    """
    found = list[RegisterUse]()
    suffix = "a" if target.warpgroup_products else ""
    for file in sorted(folder.glob("*.ptx")):
        architecture = f"-arch={target.architecture}{suffix}"
        done = subprocess.run(
            [ptxas, "-v", architecture, "-o", "/dev/null", file],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            said = " ".join(done.stderr.split())[:300]
            raise BuildError(f"expected PTX that ptxas takes for {target.name}, got {said}")
        found += said_of(done.stderr)
    return tuple(found)


def said_of(text: str) -> Iterator[RegisterUse]:
    """The kernels of what `ptxas -v` prints."""
    kernel, spilled = "", 0
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            kernel, spilled = entry[1], 0
        elif spills := _SPILLS.search(line):
            spilled = int(spills[1])
        elif (used := _USED.search(line)) and kernel:
            yield RegisterUse(kernel, int(used[1]), spilled)

"""A GPU whose kernels Pallas interprets on the processor: all of the road but its speed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from hlotune.codegen import backends
from hlotune.schedules.spaces.gpu.searched import searched_space
from hlotune.schedules.targets import kinds
from hlotune.schedules.targets.gpu import GpuTarget, gpu_target
from hlotune.schedules.targets.target import Kind, Target
from hlotune.search import tasks

KIND = "interpreted gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpretedGpu(GpuTarget):
    """An A100 that JAX's CPU plays."""

    kind: Kind = KIND

    @classmethod
    def of(cls, identity: Any) -> "InterpretedGpu":
        return INTERPRETED

    @property
    def platform(self) -> str:
        return "cpu"

    def as_found(self, device: str) -> "InterpretedGpu":
        return self


_A100 = gpu_target("cuda:a100")
INTERPRETED = InterpretedGpu(
    **{f.name: getattr(_A100, f.name) for f in fields(_A100) if f.name not in ("kind", "name")},
    name="interpreted:a100",
)

Put = Callable[[dict[str, Any], str, Any], object]


def enter(put: Put = dict.__setitem__) -> Target:
    """Puts it into the tables of this process."""
    put(kinds.KINDS, KIND, InterpretedGpu)
    put(backends.OF_KIND, KIND, "pallas")
    put(tasks.SPACES, KIND, searched_space)
    return INTERPRETED


def worker_command(role: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.support.interpreted_gpu", role)


if __name__ == "__main__":
    from hlotune.measure.workers import worker
    from tests.support import interpreted_gpu

    interpreted_gpu.enter()
    worker.main(sys.argv[1])

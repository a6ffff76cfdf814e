"""A GPU and a TPU whose kernels Pallas interprets here: all of the road but its speed.

As a program it is a worker for them, or `tune` on a machine that has them and lacks what only
searching needs: `python -m tests.support.interpreted_gpu tune measure ...`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from hlotune.codegen import backends
from hlotune.schedules.spaces.gpu.searched import searched_space
from hlotune.schedules.targets import kinds
from hlotune.schedules.targets.gpu import GpuTarget, gpu_target
from hlotune.schedules.targets.target import Kind, Target
from hlotune.schedules.targets.tpu import TpuTarget, tpu_target
from hlotune.search import tasks

KIND, TPU_KIND = "interpreted gpu", "interpreted tpu"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpretedTpu(TpuTarget):
    """A v5e that JAX's CPU plays."""

    kind: Kind = TPU_KIND

    @classmethod
    def of(cls, identity: Any) -> "InterpretedTpu":
        return INTERPRETED_TPU

    @property
    def platform(self) -> str:
        return "cpu"

    def as_found(self, device: str) -> "InterpretedTpu":
        return self


_V5E = tpu_target("tpu:v5e")
INTERPRETED_TPU = InterpretedTpu(
    **{f.name: getattr(_V5E, f.name) for f in fields(_V5E) if f.name not in ("kind", "name")},
    name="interpreted:v5e",
)

Put = Callable[[dict[str, Any], str, Any], object]


def enter(put: Put = dict.__setitem__) -> Target:
    """Puts both into the tables of this process; the GPU."""
    for kind, of_kind in ((KIND, InterpretedGpu), (TPU_KIND, InterpretedTpu)):
        put(kinds.KINDS, kind, of_kind)
        put(backends.OF_KIND, kind, "pallas")
        put(tasks.SPACES, kind, searched_space)
    for target in (INTERPRETED, INTERPRETED_TPU):
        put(kinds.NAMED, target.name, target)
    return INTERPRETED


def worker_command(role: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.support.interpreted_gpu", role)


def tune(arguments: list[str]) -> int:
    """Runs the command line where these devices have names, workers, and no packages to search."""
    from hlotune.cli.main import run_command

    for package in ("xgboost", "torch", "sqlite_utils"):
        sys.modules[package] = None  # type: ignore[assignment]
    give_workers(setattr)
    return run_command(arguments)


def give_workers(put: Callable[[Any, str, Any], object]) -> None:
    """Makes the builder and the runner of `tune measure` start workers that have these devices."""
    from hlotune.measure.workers import builder, several_devices

    for module, name, role in (
        (builder, "ProcessBuilder", "build"),
        (several_devices, "SeveralDevices", "device"),
    ):
        put(module, name, partial(getattr(module, name), command=worker_command(role)))


if __name__ == "__main__":
    from hlotune.measure.workers import worker
    from tests.support import interpreted_gpu
    from tests.support.quick_compilation import quick_compilation

    interpreted_gpu.enter()
    with quick_compilation():  # by XLA, which plays the device
        if sys.argv[1] == "tune":
            raise SystemExit(interpreted_gpu.tune(sys.argv[2:]))
        worker.main(sys.argv[1])

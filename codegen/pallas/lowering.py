"""Lowers functions for GPUs and TPUs, present or absent."""

import importlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
from jax import export

from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.tpu import TpuTarget

Function = Callable[..., Any]
KERNEL_CALLS = ("__gpu$xla.gpu.triton", "mosaic_gpu", "mosaic_gpu_v2")
"""The custom calls that hold kernels for GPUs."""


def prepare_for(text: str) -> None:
    """Makes this process able to compile the kernels of a module: JAX's module for Hopper tells XLA
    where the library is that those kernels call, and without it their symbols are not found.
    """
    if "mosaic_gpu" in text:
        importlib.import_module("hlotune.codegen.pallas.mosaic")


@contextmanager
def quiet() -> Iterator[None]:
    """Hides JAX's warning that it means to remove its backend for Triton some day.

    It has no other one for GPUs before Hopper.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Pallas Triton backend.*")
        yield


def lowered(function: Function, operands: Sequence[Any]) -> Any:
    """Lowers a function for the device that is there."""
    with quiet():
        return jax.jit(function).lower(*operands)


def lowered_for(target: GpuTarget, function: Function, operands: Sequence[Any]) -> Any:
    """Lowers a function for a target that need not be there."""
    with quiet(), _as_if_on(target.title, target.multiprocessors, "gpu"):
        return _lower(function, operands)


def _lower(function: Function, operands: Sequence[Any]) -> Any:
    return jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))


def exported_for_gpu(target: GpuTarget, function: Function, operands: Sequence[Any]) -> Any:
    """For a GPU that need not be there, as something that JAX calls in other programs."""
    unchecked = [export.DisabledSafetyCheck.custom_call(name) for name in KERNEL_CALLS]
    with quiet(), _as_if_on(target.title, target.multiprocessors, "gpu"):
        made = export.export(jax.jit(function), platforms=["cuda"], disabled_checks=unchecked)
        return made(*operands)


def exported_for_tpu(target: TpuTarget, function: Function, operands: Sequence[Any]) -> Any:
    """Exports a function for a TPU that need not be there."""
    with _as_if_on(target.devices[0], target.cores, "tpu"):
        return export.export(jax.jit(function), platforms=["tpu"])(*operands)


def _as_if_on(kind: str, cores: int, platform: str) -> Any:
    """A context in which lowering sees a device of this kind, where JAX knows such contexts."""
    sharding: Any = jax.sharding
    if not hasattr(sharding, "AbstractDevice"):
        return nullcontext()
    device = sharding.AbstractDevice(device_kind=kind, num_cores=cores, platform=platform)
    automatic = (sharding.AxisType.Auto,)  # explicit axes put sharding constraints into the text
    mesh = sharding.AbstractMesh((1,), ("devices",), automatic, abstract_device=device)
    return sharding.use_abstract_mesh(mesh)

"""Lowers functions for GPUs, present or absent."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from hlotune.schedules.targets.gpu import GpuTarget

Function = Callable[..., Any]


@contextmanager
def quiet() -> Iterator[None]:
    """Without JAX's warning that it means to remove its backend for Triton some day.

    It has no other one for GPUs before Hopper.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Pallas Triton backend.*")
        yield


def lowered(function: Function, operands: Sequence[Any]) -> Any:
    """For the device that is there."""
    with quiet():
        return jax.jit(function).lower(*operands)


def lowered_for(target: GpuTarget, function: Function, operands: Sequence[Any]) -> Any:
    """For a target that need not be there."""
    sharding: Any = jax.sharding
    with quiet():
        if not hasattr(sharding, "AbstractDevice"):
            return _lower(function, operands)
        device = sharding.AbstractDevice(
            device_kind=target.title, num_cores=target.multiprocessors, platform="gpu"
        )
        mesh = sharding.AbstractMesh((1,), ("gpus",), abstract_device=device)
        with sharding.use_abstract_mesh(mesh):
            return _lower(function, operands)


def _lower(function: Function, operands: Sequence[Any]) -> Any:
    return jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))

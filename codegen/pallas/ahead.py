"""Compiles kernels for GPUs and TPUs that are not here, by JAX's plug-ins for them alone.

Needs the packages of the extra `aot`: XLA's plug-in for CUDA with NVIDIA's assembler, and libtpu.
What is compiled so is thrown away: it says whether a device's own compiler takes a kernel, whose
blocks must fit into shared or vector memory.
"""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax.experimental import topologies

from hlotune.codegen.pallas.assembler import dumping
from hlotune.codegen.pallas.lowering import Function, exported_for_gpu, exported_for_tpu
from hlotune.schedules.errors import BuildError
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.tpu import TpuTarget

TOPOLOGIES = {"tpu:v5e": "v5e:2x2", "tpu:v6e": "v6e:2x2"}
"""What libtpu calls the smallest machine with such chips."""


def compiled_ahead(
    target: GpuTarget | TpuTarget,
    function: Function,
    operands: Sequence[Any],
    dump: Path | None = None,
) -> None:
    """Compiles a function for a target.

    `dump` is a folder where XLA writes what it made, among it the text of kernels.

    Raises:
        BuildError: where the plug-in is missing, or the target's compiler refuses the kernel.
    """
    device = _device(target)
    one = jax.sharding.SingleDeviceSharding(device)
    try:
        exported = _exported(target, function, operands)
        call = jax.jit(exported.call, in_shardings=one, out_shardings=one)
        options: Any = dumping(dump) if dump else None
        call.lower(*operands).compile(compiler_options=options)
    except Exception as error:  # a compiler's, for any reason
        said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        raise BuildError(
            f"expected a kernel that compiles for {target.name}, got {said}"
        ) from error


def _exported(target: GpuTarget | TpuTarget, function: Function, operands: Sequence[Any]) -> Any:
    if isinstance(target, GpuTarget):
        return exported_for_gpu(target, function, operands)
    return exported_for_tpu(target, function, operands)


@cache
def _device(target: GpuTarget | TpuTarget) -> Any:
    """A device of this kind that can be compiled for, and no more."""
    try:
        if isinstance(target, GpuTarget):
            os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
            found = topologies.get_topology_desc(
                target.name, platform="cuda", topology="1x1x1", target_config=config_of(target)
            )
        else:
            # No TPU is used, so that several processes may compile at once.
            os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
            os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
            found = topologies.get_topology_desc(TOPOLOGIES[target.name], platform="tpu")
    except (NotImplementedError, RuntimeError) as error:
        raise BuildError(
            f"expected JAX's plug-in for {target.platform} to compile for {target.name}, got "
            f"{' '.join(str(error).split())[:300]}; install hlotune[aot]"
        ) from error
    return found.devices[0]


def config_of(target: GpuTarget) -> str:
    """What XLA wants to know of a GPU that it does not see, as its own text."""
    major, minor = target.capability
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * 1024}
  shared_memory_per_core: {target.shared_bytes}
  shared_memory_per_block_optin: {target.block_shared_bytes}
  threads_per_core_limit: {target.threads}
  core_count: {target.multiprocessors}
  fpus_per_core: {128 if major >= 9 else 64}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {int(target.memory_bytes_per_s)}
  l2_cache_size: {target.l2_bytes}
  clock_rate_ghz: {target.clock_hz / 1e9}
  device_memory_size: {target.memory_bytes}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: {target.registers}
  registers_per_block_limit: {target.registers}
}}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{target.device}"
"""

"""Which target is here: this machine's CPU, or a device that JAX finds beside it."""

import json
import os
import subprocess
from functools import cache
from typing import Any

import jax

from hlotune.measure.machine.targets import host_target, require_host
from hlotune.schedules.errors import TargetError
from hlotune.schedules.processes import python_module, python_path
from hlotune.schedules.targets.cpu import HOST_PLATFORM, CpuTarget
from hlotune.schedules.targets.kinds import NAMED
from hlotune.schedules.targets.target import Target
from hlotune.schedules.targets.tpu import TPU_PLATFORM, TpuTarget

ASK_LIMIT_S = 120.0


def target_here(target: Target | None = None) -> Target:
    """The target as it is found on this machine; by default its CPU.

    Raises TargetError where the machine is another one, or has no such device.
    """
    if target is None:
        return host_target()
    if isinstance(target, CpuTarget):
        return require_host(target.fingerprint)
    names = device_names(target.platform)
    found = target.as_found(names[0]) if names else None
    if found is None:
        raise TargetError(
            f"expected {target.name}, and JAX finds {', '.join(names) or 'no such device'} here; "
            "run this on a machine that has one, or carry the search there with "
            f"`tune export-candidates PROGRAM FILE --target {target.name}` and `tune measure FILE`"
        )
    return found


def default_target() -> Target:
    """The target of JAX's first device, where programs run that name no device.

    Raises TargetError where it is none that is known by name, or no CPU that code is made for.
    """
    first = jax.devices()[0]
    if first.platform == HOST_PLATFORM:
        return host_target()
    known = (t.as_found(first.device_kind) for t in NAMED.values())
    found = next(filter(None, known), None)
    if found is None:
        raise TargetError(
            f"expected JAX's first device to be a CPU or one of {', '.join(NAMED)}, got "
            f"{first.device_kind}; its programs are left to XLA"
        )
    return found


def target_with(fingerprint: str) -> Target:
    """JAX's first device, or this machine's CPU, whichever has the fingerprint.

    Raises TargetError where neither has it.
    """
    try:
        first = default_target()
    except TargetError:
        return require_host(fingerprint)
    return first if first.fingerprint == fingerprint else require_host(fingerprint)


def devices_like(target: Target, count: int) -> tuple[int, ...]:
    """The numbers of the first `count` devices of the target among those of its platform.

    Raises TargetError where there are fewer, or where one process has to have all of them.
    """
    if isinstance(target, CpuTarget):
        raise TargetError(
            f"expected a GPU as the target of {count} devices, got this machine's CPU; name one by "
            "--target, or leave --devices out"
        )
    names = device_names(target.platform)
    alike = [
        number
        for number, name in enumerate(names)
        if (found := target.as_found(name)) and found.fingerprint == target.fingerprint
    ]
    if isinstance(target, TpuTarget) and count > 1:
        raise TargetError(
            f"expected to measure on one {target.title}, got {count}: a process that finds TPUs "
            "has all of them; leave --devices out"
        )
    if len(alike) < count:
        raise TargetError(
            f"expected {count} devices that are {target.title}, and JAX finds {len(alike)} here; "
            "ask for no more"
        )
    return tuple(alike[:count])


def require_shared(target: Target | None) -> None:
    """Raises TargetError for a target that two processes cannot have at the same time.

    A search needs it in two: a worker measures kernels, and this process runs the whole program.
    """
    if target is not None and target.platform == TPU_PLATFORM:
        raise TargetError(
            f"expected a device that two processes may use, got {target.title}: search there by "
            f"`tune export-candidates PROGRAM FILE --target {target.name}`, `tune measure FILE` "
            "and `tune db import`"
        )


def leave_devices() -> None:
    """Makes JAX open none but the CPU in this process, if it has opened nothing yet."""
    config: Any = jax.config  # whose methods have no types
    config.update("jax_platforms", HOST_PLATFORM)


def device_names(platform: str) -> tuple[str, ...]:
    """What JAX calls its devices of a platform; none where it finds none.

    A process that looks for TPUs keeps them, and no worker could open them, so another process is
    asked for those.  Where it finds none, this process may have them.
    """
    if platform == TPU_PLATFORM and (found := names_elsewhere(platform)):
        return found
    try:
        return tuple(d.device_kind for d in jax.devices(platform))
    except RuntimeError:
        return ()


@cache
def names_elsewhere(platform: str) -> tuple[str, ...]:
    """`device_names` of a process that ends; none where it finds none, or takes too long."""
    command = python_module("hlotune.measure.machine.name_devices", platform)
    environment = {**os.environ, "JAX_PLATFORMS": platform, "PYTHONPATH": python_path()}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ASK_LIMIT_S,
            check=True,
        )
        return tuple(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return ()

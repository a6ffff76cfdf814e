"""Which target is here: this machine's CPU, or a device that JAX finds beside it."""

import jax

from hlotune.measure.machine.targets import host_target, require_host
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Target


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


def device_names(platform: str) -> tuple[str, ...]:
    """What JAX calls its devices of a platform; none where it finds none."""
    try:
        return tuple(d.device_kind for d in jax.devices(platform))
    except RuntimeError:
        return ()

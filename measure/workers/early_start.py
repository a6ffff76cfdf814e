"""Worker processes begun before somebody asks for them: they import while their parent does.

A command begins them and goes on to load its program; the builder and the runner that are made
later take them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from hlotune.codegen.runtime.malloc_settings import KEEPING
from hlotune.measure.workers.channel import Channel
from hlotune.schedules.processes import python_module
from hlotune.schedules.targets.cpu import HOST_PLATFORM, CpuTarget
from hlotune.schedules.targets.target import Target

BUILD_WORKER = python_module("hlotune.measure.workers.worker", "build")
DEVICE_WORKER = python_module("hlotune.measure.workers.worker", "device")

BUILD_ENVIRONMENT = {"JAX_PLATFORMS": HOST_PLATFORM}
"""Builders lower for other devices without having them, whose memory JAX would take otherwise."""

BUILDERS = 2
MOST_BUILDERS = 8
"""For other devices than CPUs, where lowering a kernel takes Python a second."""


def builders_for(target: Target) -> int:
    """How many processes build for a target: for a CPU few, since they share it with the kernels'
    threads; for another device as many as this machine has processors, up to `MOST_BUILDERS`.
    """
    if isinstance(target, CpuTarget):
        return BUILDERS
    return max(BUILDERS, min(MOST_BUILDERS, os.cpu_count() or 1))


def device_environment(target: Target | None = None) -> dict[str, str]:
    """Variables for the worker that measures on a target, by default on this machine.

    JAX has the CPU beside another device, whose memory it does not take in advance: the process
    that starts the worker needs some of it, too.
    """
    if target is None or isinstance(target, CpuTarget):
        return {"JAX_PLATFORMS": HOST_PLATFORM, **KEEPING}
    platforms = dict.fromkeys([target.platform, HOST_PLATFORM])
    return {
        "JAX_PLATFORMS": ",".join(platforms),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **KEEPING,
    }


_waiting: list[Channel] = []


@contextmanager
def workers_ahead() -> Iterator[None]:
    """Begins those of one builder and one runner; ends those that nobody took."""
    wanted = [
        (DEVICE_WORKER, device_environment()),
        *[(BUILD_WORKER, BUILD_ENVIRONMENT)] * BUILDERS,
    ]
    for command, environment in wanted:
        channel = Channel(command, environment)
        channel.begin()
        _waiting.append(channel)
    try:
        yield
    finally:
        while _waiting:
            _waiting.pop().close()


def taken(command: Sequence[str], environment: Mapping[str, str]) -> Channel:
    """One that was begun ahead, else one that begins when it is asked for something."""
    for channel in _waiting:
        if (channel.command, channel.environment) == (command, environment):
            _waiting.remove(channel)
            return channel
    return Channel(command, environment)

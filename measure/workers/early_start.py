"""Worker processes begun before somebody asks for them: they import while their parent does.

A command begins them and goes on to load its program; the builder and the runner that are made
later take them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from hlotune.codegen.runtime.malloc_settings import KEEPING
from hlotune.measure.workers.channel import Channel
from hlotune.schedules.processes import python_module

BUILD_WORKER = python_module("hlotune.measure.workers.worker", "build")
DEVICE_WORKER = python_module("hlotune.measure.workers.worker", "device")

BUILDERS = 2
DEVICE_ENVIRONMENT = {"JAX_PLATFORMS": "cpu", **KEEPING}

_waiting: list[Channel] = []


@contextmanager
def workers_ahead() -> Iterator[None]:
    """Begins those of one builder and one runner; ends those that nobody took."""
    wanted = [(DEVICE_WORKER, DEVICE_ENVIRONMENT), *[(BUILD_WORKER, {})] * BUILDERS]
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

"""Times of a function on a GPU: kernels by the driver's own records, and calls in a queue.

The time of a kernel is what CUPTI, CUDA's tracing interface, says of it: from its first to its
last instruction, the gaps between kernels left out.  The time of a call in a queue is the host's,
over many calls that wait for nothing in between; it includes gaps, and the host's own work where a
call takes less than that.
"""

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
LAUNCHES = (5, 400)
"""The launches in one burst, at least and at most."""
Sets = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """One burst of calls, in seconds."""

    kernels_s: tuple[float, ...]
    """For each call the sum over its kernels; empty where CUPTI does not answer."""
    queue_s: float
    """The time of one call in the queue, on average."""
    kernels: int
    """How many kernels one call launches; 0 where that is not known."""

    @property
    def seconds(self) -> float:
        """The median over kernels' records, or the queue's average where there are none."""
        return statistics.median(self.kernels_s) if self.kernels_s else self.queue_s


def times(function: Callable[..., Any], sets: Sets, warm_s: float, sample_s: float) -> DeviceTimes:
    """Times one burst of a compiled function over sets of operands in turn.

    Calls of `warm_s` go before, without a pause, so that the clocks are those of a busy device.
    Where the sets together exceed the L2 cache several times, no call finds its operands there.
    """
    once = queued(function, sets, 3)
    launches = max(LAUNCHES[0], min(LAUNCHES[1], round(sample_s / once)))
    warm = max(1, min(LAUNCHES[1], round(warm_s / once)))
    queued(function, sets, warm)
    queue_s = queued(function, sets, launches)
    tracer = _tracer()
    if tracer is None:
        return DeviceTimes((), queue_s, 0)
    tracer._cupti_init()
    queued(function, sets, warm + launches)
    kernels_s, kernels = by_call(tracer._cupti_get_timings(True), warm + launches)
    return DeviceTimes(kernels_s[-launches:], queue_s, kernels)


def queued(function: Callable[..., Any], sets: Sets, launches: int) -> float:
    """Seconds a call of so many."""
    start = time.perf_counter()
    result: Any = None
    for n in range(launches):
        result = function(*sets[n % len(sets)])
    if result is not None:
        result.block_until_ready()
    return (time.perf_counter() - start) / launches


def by_call(kernels: Sequence[tuple[str, float]], calls: int) -> tuple[tuple[float, ...], int]:
    """Seconds of each call, of the names and milliseconds of all kernels; kernels a call.

    Nothing where the calls did not launch equally many.
    """
    each = len(kernels) // calls
    if each == 0 or len(kernels) % calls:
        return (), 0
    seconds = [milliseconds / 1e3 for _, milliseconds in kernels]
    return tuple(sum(seconds[n : n + each]) for n in range(0, len(seconds), each)), each


def _tracer() -> Any:
    """JAX's binding of CUPTI, or None where no plugin for CUDA is installed."""
    for plugin in PLUGINS:
        try:
            return importlib.import_module(f"{plugin}._mosaic_gpu_ext")
        except ImportError:
            continue
    return None

"""One kernel on a device that JAX drives and that is no CPU: its default and its candidates.

A candidate stands in a program of its own as it will stand in its site, as the StableHLO of its
backend's `replacement`, and the default is the kernel's own text; XLA compiles both for the device.
By either clock a sample is one burst of calls (`device_times.py`), as long as the device needs to
get warm.  In the cache mode `model` the calls take several copies of all operands in turn, which
together exceed the device's last cache; in `warm` each call takes the same ones.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil
from typing import Any

import jax
import numpy as np

from hlotune.codegen.backend import Signature
from hlotune.codegen.backends import backend_named
from hlotune.codegen.built import Built
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir.compiled import compiled
from hlotune.measure.timing.device_times import times
from hlotune.measure.timing.timing import Subject
from hlotune.measure.timing.xla import default_text
from hlotune.measure.trial import CacheMode
from hlotune.measure.trial import Clock as ClockName
from hlotune.measure.verification.inputs import draw
from hlotune.schedules.targets.target import Target

WARM_S, SAMPLE_S = 0.01, 0.02
"""How long the calls of a burst take that are not timed, and those that are."""
CACHED_BYTES = 64 << 20
"""The last cache of any device that is known; operands in turn exceed it three times."""
MOST_COPIES = 8
MOST_THREADS = os.cpu_count() or 1


@dataclass(eq=False)
class JaxBench:
    """What belongs to one kernel on the device: made once, used for all of its candidates."""

    kernel: Kernel
    target: Target
    cache: CacheMode

    @cached_property
    def signature(self) -> Signature:
        graph = graph_of(self.kernel)
        return Signature(tuple(graph.argument_types), tuple(graph.result_types))

    @cached_property
    def _sets(self) -> list[list[jax.Array]]:
        """Operands on the device, as many sets as the cache mode takes in turn."""
        values = draw(graph_of(self.kernel), "normal", np.random.default_rng(0))
        device = jax.devices(self.target.platform)[0]
        moved = sum(t.bytes for t in (*self.signature.arguments, *self.signature.results))
        count = min(MOST_COPIES, ceil(3 * CACHED_BYTES / max(1, moved)))
        with jax.enable_x64(True):
            return [
                [jax.device_put(v, device) for v in values]
                for _ in range(count if self.cache == "model" else 1)
            ]

    def candidate(
        self,
        built: Built,
        place: str = "candidate",
        loaded: Any = None,
        clock: ClockName = "kernel",
    ) -> Subject:
        """A built kernel, `loaded` where it is in this process already.

        Raises BuildError where it cannot be loaded.
        """
        backend = backend_named(built.backend)
        ready = backend.load(built) if loaded is None else loaded
        return self._subject(backend.replacement(ready, self.signature, {}).text)

    def default(
        self, clock: ClockName = "kernel", *, is_long: bool = False, baked: bool = True
    ) -> tuple[Subject, ...]:
        """XLA's own kernel, with its own choice of tilings for the device."""
        return (self._subject(default_text(self.kernel)),)

    def _subject(self, text: str) -> Subject:
        execute = compiled(text, self.target.platform).execute
        function = _last_of(execute)

        def burst() -> float:
            return times(function, self._sets, WARM_S, SAMPLE_S).seconds

        return Subject(burst, lambda: 0.0)


def _last_of(execute: Callable[[Sequence[jax.Array]], list[jax.Array]]) -> Callable[..., jax.Array]:
    """A function of arrays whose one result is there when all of the call is."""
    return lambda *operands: execute(operands)[-1]


def compile_together(candidates: Sequence[tuple[JaxBench, Built]]) -> None:
    """Compiles candidates and the defaults of their kernels at the same time, so that `candidate`
    and `default` have them at once.

    What cannot be compiled fails again where it is asked for alone, which says why.
    """
    defaults = [bench.default for bench in dict.fromkeys(bench for bench, _ in candidates)]
    forms = [*(partial(bench.candidate, built) for bench, built in candidates), *defaults]
    with ThreadPoolExecutor(min(MOST_THREADS, max(1, len(forms)))) as threads:
        list(threads.map(_tried, forms))


def _tried(form: Callable[[], object]) -> None:
    with suppress(Exception):
        form()

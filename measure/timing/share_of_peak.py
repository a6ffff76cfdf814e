"""What the machine does no faster as a subject: in turns with a kernel, it tells its share of that.

Multiply-adds in registers are beside a kernel that computes, a plain read beside one that waits for
memory.

The clock of a processor moves by several per cent within seconds, with its heat and with what its
neighbours do.  A share of a peak that was measured minutes before says as much of that as of the
kernel.

It also moves with what runs: multiply-adds alone heat most, and what follows them at once is slower
for some milliseconds.  So a turn lasts long enough for each to have the clock that it has by
itself.  What memory gives moves more than the clock, by half within minutes on a shared machine.
"""

import time
from functools import cache, lru_cache
from math import ceil

import jax
import numpy as np

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.call_module import replacement
from hlotune.codegen.runtime.dispatcher import bind
from hlotune.codegen.runtime.loader import load
from hlotune.codegen.runtime.support import machine_code
from hlotune.hlo.graph import TensorType
from hlotune.measure.timing.held_threads import held_threads
from hlotune.measure.timing.peaks import SMALL, Loop, compute_text, peak_loops, read_text
from hlotune.measure.timing.timing import Clock, Effort, Subject
from hlotune.measure.timing.xla import compiled, on_device
from hlotune.schedules.targets.cpu import CpuTarget

TURNS = Effort(sample_s=0.01, most_calls=256)
"""A turn of either; the median of its calls is the sample."""

_RUN_S = 1e-3
"""Long beside the start of threads, short beside changes of the clock."""
TRIAL_TRIPS = 1 << 14
_TRIALS = 5
_MOST_HZ = 1e10
"""Above every clock, so that no trip through the loop is shorter than this says."""
_INPUT_BYTES = 4096
_PAGE_BYTES = 4096


@cache
def peak(dtype: str, target: CpuTarget) -> tuple[Subject, int]:
    """Multiply-adds of the operands' type on all threads, and how many operations a call does.

    The empty call of the subject makes one trip through the same loop, so that what remains is the
    loop alone.  Raises KeyError where the target has no peak of that type.
    """
    loop = peak_loops(target)[dtype]
    empty, some = (_calls(loop, trips, target) for trips in (1, 1 + TRIAL_TRIPS))
    trips = trips_of_a_call(empty, some, loop.chains / target.multiply_adds / _MOST_HZ)
    subject = Subject(_calls(loop, 1 + trips, target), empty)
    return subject, loop.work * trips * target.threads


def trips_of_a_call(empty: Clock, some: Clock, least_s: float) -> int:
    """How many trips take a millisecond, where `some` calls make 2^14 more than `empty` ones.

    The shortest call of either is one that nothing interrupted; the smallest difference would be
    one whose `empty` call was.

    Args:
        least_s: seconds that no trip is shorter than.
    """
    pairs = [(some(), empty()) for _ in range(_TRIALS)]
    trip_s = (min(s for s, _ in pairs) - min(e for _, e in pairs)) / TRIAL_TRIPS
    return ceil(_RUN_S / max(trip_s, least_s))


@lru_cache(maxsize=1)
def reading(size: int, target: CpuTarget) -> tuple[Subject, int]:
    """A read of about `size` bytes, an equal part on each thread, and how many bytes that is.

    Again and again the same ones, as a kernel reads its operands; the empty call of the subject
    reads the first few of them.
    """
    part = max(_PAGE_BYTES, size // target.threads // _PAGE_BYTES * _PAGE_BYTES)
    operand = on_device(np.full(part * target.threads, SMALL, np.uint8))
    call, empty = (
        _clock(
            f"read.{size}.{bytes_}",
            _built(read_text(bytes_, target.threads, target.vector_bytes), target),
            operand,
            sunk_bytes=512 * target.threads,
            target=target,
        )
        for bytes_ in (part, 8 * target.vector_bytes)
    )
    return Subject(call, empty), part * target.threads


def _calls(loop: Loop, trips: int, target: CpuTarget) -> Clock:
    tasks = target.threads
    return _clock(
        f"peak.{loop.vector}.{loop.work}.{trips}",
        _built(compute_text(loop, trips, tasks), target, tiles=loop.tiles),
        on_device(np.full(_INPUT_BYTES, SMALL, np.uint8)),
        sunk_bytes=64 * loop.chains * tasks,
        target=target,
    )


def _built(text: str, target: CpuTarget, *, tiles: bool = False) -> Built:
    return Built(machine_code(text, target, "peak"), 0, (), 0, target.threads, tiles=tiles)


def _clock(
    key: str, built: Built, operand: jax.Array, *, sunk_bytes: int, target: CpuTarget
) -> Clock:
    """Blocking calls, made as kernels are: through the custom call."""
    source = TensorType(operand.shape, "ui8")
    sink = TensorType((sunk_bytes,), "ui8")
    bind(key, load(built))
    program = compiled(replacement(key, [source], [sink], 0, {}))
    held = held_threads(target)

    def once() -> float:
        held.begin()
        start = time.perf_counter()
        for result in program([operand]):
            result.block_until_ready()
        return time.perf_counter() - start

    once()
    return held.clock(once)

"""Operands as cold as weights inside a network: copies of the constants, taken in turn.

Between two uses of a copy all others of its ring are read: twice the last-level cache in all, or
less where that cache is so large that it keeps any ring.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.measure.timing.xla import all_on_device
from hlotune.measure.verification.buffers import rounded
from hlotune.measure.verification.inputs import Array
from hlotune.schedules.large_pages import region
from hlotune.schedules.targets.cpu import CpuTarget

MOST_BYTES = 256 << 20
WITHIN_BYTES = 64 << 20
"""The size of a ring that the last cache holds as a whole: constants are to leave only the inner
caches.
"""
MOST_COPIES = 256
"""Constants below a 256th of a ring have a shorter one, and stay in the last cache."""


def ring_bytes(target: CpuTarget) -> int:
    """The size of a ring from which constants come as far as those of a large model do.

    A cache that holds the largest ring, as that of a big server does, holds all but the largest
    models too: there a longer ring takes its time and leaves constants where a short one does, as
    long as it is twice what the caches below hold.
    """
    if target.l3_bytes < MOST_BYTES:
        return min(2 * target.l3_bytes, MOST_BYTES)
    return min(max(WITHIN_BYTES, 2 * target.l2_bytes * target.threads), MOST_BYTES)


def copies(constant_bytes: int, wanted_bytes: int) -> int:
    """How many copies make a ring of so many bytes, or as many as there is memory for."""
    if constant_bytes == 0:
        return 1
    wanted = -(-wanted_bytes // constant_bytes)
    return max(1, min(wanted, MOST_COPIES, MOST_BYTES // constant_bytes))


class Arena:
    """Memory in huge pages for one ring at a time, made once: rings come without page faults."""

    def __init__(self) -> None:
        self._memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def ring(self, constants: Sequence[Array], count: int) -> Iterator[list[jax.Array]]:
        """Endlessly, one copy of each constant after another.  The ring made before is lost."""
        sizes = [rounded(c.nbytes) for c in constants]
        if self._memory.size < count * sum(sizes):
            self._memory = region(count * sum(sizes))
        start = 0
        places: list[Array] = []
        for _ in range(count):
            for constant, size in zip(constants, sizes, strict=True):
                place = self._memory[start : start + constant.nbytes].view(constant.dtype)
                place[...] = constant.reshape(-1)
                places.append(place.reshape(constant.shape))
                start += size
        arrays, each = all_on_device(places), len(constants)
        return cycle([arrays[n * each : (n + 1) * each] for n in range(count)])

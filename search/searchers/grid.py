"""A walk along points of a lattice over all knobs: each beginning of it covers the space evenly.

A plain grid would spend years on the last knob.  The lattice steps along each axis by the square
root of a prime of its own, as Richtmyer proposed: the points of any beginning lie apart.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.history import History, Times
from hlotune.search.searchers.random_search import batch_rng, filled, legal_rows
from hlotune.search.searchers.searcher_state import packed, unpacked

STRIDE = 1024
"""So many points of the lattice are looked at together."""
STRIDES = 16
"""So many strides are walked in one proposal at most; where too few of their points are legal,
random configs fill the proposal up.
"""
SAMPLE = 4096
"""A sample of so many configs shows how far each column reaches."""


class Grid:
    """Takes a model because every searcher does, and does not ask it."""

    def __init__(
        self, space: Space, model: CostModel, entropy: tuple[int, ...], first: Configs
    ) -> None:
        self._space, self._entropy = space, entropy
        self._first = legal_rows(space, first)
        rng = batch_rng(entropy, 0)
        self._counts = 1 + space.sample(SAMPLE, rng).max(axis=0).astype(np.int64)
        self._start = rng.random(len(self._counts))
        self._walked = 0
        self.history = History(space)

    def propose(self, n: int) -> Configs:
        rows = self._first[self.history.unseen(self._first)]
        begin = self._walked
        for stride in range(STRIDES):
            if len(rows) >= n:
                break
            # Stays at the last stride: what the batch has no room for comes with the next one.
            self._walked = begin + stride * STRIDE
            rows = np.concatenate([rows, self._stride()])
            rows = rows[self.history.unseen(rows)]
        return filled(
            self._space, self.history, rows, n, batch_rng(self._entropy, len(self.history))
        )

    def _stride(self) -> Configs:
        points = lattice(self._start, self._walked, STRIDE)
        configs: Configs = (points * self._counts).astype(np.int32)
        return configs[self._space.legal(configs)]

    def observe(self, configs: Configs, times_s: Times) -> None:
        self.history.add(configs, times_s)

    def state(self) -> bytes:
        return packed({"walked": np.array(self._walked), **self.history.arrays()})

    def restore(self, state: bytes) -> None:
        arrays = unpacked(state)
        self.history = History.of(self._space, arrays)
        self._walked = int(arrays["walked"])


def lattice(start: NDArray[np.float64], begin: int, count: int) -> NDArray[np.float64]:
    """`(count, dimensions)` points of the unit cube, from number `begin` on."""
    steps = np.sqrt(primes(len(start)))
    points: NDArray[np.float64] = (start + np.outer(np.arange(begin, begin + count), steps)) % 1.0
    return points


def primes(n: int) -> list[int]:
    """The first n primes."""
    found: list[int] = []
    candidate = 2
    while len(found) < n:
        if all(candidate % p for p in found):
            found.append(candidate)
        candidate += 1
    return found

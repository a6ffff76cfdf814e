"""The space of a kernel with all its algorithms: `space_of` is what searches ask for.

Column 0 of a config counts the sketches of all algorithms, one after the other; the columns behind
are the knobs of the algorithm's own space, and zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.algorithm import AlgorithmSpace
from hlotune.schedules.algorithms.table import ALGORITHMS, algorithm_of
from hlotune.schedules.features.loop_trees import ABSENT, Nodes
from hlotune.schedules.features.summary import COLUMN
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.patterns.attention import is_attention
from hlotune.schedules.patterns.rows import is_rows
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

JUMPS = 0.03
"""The share of moves that go to another algorithm."""
COSTS = ("core", "checks", "l1", "l2", "l3", "packing", "waking")


def space_of(
    compute: Compute, target: CpuTarget, numerics: Numerics = "standard"
) -> "AlgorithmSpace | AlgorithmsSpace":
    """All schedules of a kernel by the algorithms that a setting of numerics allows.

    Raises UnsupportedKernel where there is no rule for the compute, or no legal schedule.
    """
    pattern = pattern_of(compute)
    allowed = (
        a for a in ALGORITHMS.values()
        if a.is_allowed(numerics) and a.pattern in (pattern, "any")
    )  # fmt: skip
    parts = tuple(space for a in allowed for space in a.spaces(compute, target))
    return AlgorithmsSpace(parts) if len(parts) > 1 else parts[0]


def pattern_of(compute: Compute) -> Pattern:
    if is_attention(compute):
        return "attention"
    return "rows" if is_rows(compute) else "contraction"


@dataclass(frozen=True)
class AlgorithmsSpace:
    parts: tuple[AlgorithmSpace, ...]
    """The spaces of the algorithms, in the order in which their first candidates are measured."""

    @property
    def sketches(self) -> tuple[object, ...]:
        return tuple(s for part in self.parts for s in part.sketches)

    @property
    def pattern(self) -> Pattern:
        return self.parts[0].pattern

    @property
    def size(self) -> float:
        return sum(part.size for part in self.parts)

    @cached_property
    def counts(self) -> tuple[NDArray[np.int32], ...]:
        """Values of each column of each part."""
        return tuple(p.counts for p in self.parts)

    @cached_property
    def width(self) -> int:
        return max(map(len, self.counts))

    @cached_property
    def starts(self) -> NDArray[np.int32]:
        """First sketch of each part, and the number of all."""
        counts = [c[0] for c in self.counts]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    def part_of(self, configs: Configs) -> NDArray[np.int64]:
        """`(n,)`: position of each config's part; len(parts) where the sketch is none."""
        found = np.searchsorted(self.starts, configs[:, 0], side="right") - 1
        return np.where(configs[:, 0] < 0, len(self.parts), found)

    def _own(self, k: int, configs: Configs) -> Configs:
        """Configs of one part, as that part has them."""
        own = configs[:, : len(self.counts[k])].copy()
        own[:, 0] -= self.starts[k]
        return own

    def _joined(self, k: int, own: Configs) -> Configs:
        result = np.zeros((len(own), self.width), dtype=np.int32)
        result[:, : own.shape[1]] = own
        result[:, 0] += self.starts[k]
        return result

    def _by_part(self, configs: Configs) -> list[tuple[int, AlgorithmSpace, NDArray[np.int64]]]:
        parts = self.part_of(configs)
        rows = [(k, p, np.flatnonzero(parts == k)) for k, p in enumerate(self.parts)]
        return [(k, p, r) for k, p, r in rows if len(r)]

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        result = np.zeros(len(configs), dtype=np.bool_)
        for k, part, rows in self._by_part(configs):
            own, rest = self._own(k, configs[rows]), configs[rows, len(self.counts[k]) :]
            inside = within(own, self.counts[k]) & ~rest.any(axis=1)
            result[rows[inside]] = part.legal(own[inside])
        return result

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        """A hash of the nest of each config: equal nests have equal digests."""
        result = np.zeros(len(configs), dtype=np.uint64)
        for k, part, rows in self._by_part(configs):
            result[rows] = part.digest(self._own(k, configs[rows])) + np.uint64(k)
        return result

    def features(self, configs: Configs) -> NDArray[np.float32]:
        def of(part: AlgorithmSpace, own: Configs) -> NDArray[np.float32]:
            return part.features(own)

        return self._gathered(configs, of)

    def _gathered(
        self, configs: Configs, of: Callable[[AlgorithmSpace, Configs], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        found = [
            (rows, of(part, self._own(k, configs[rows])))
            for k, part, rows in self._by_part(configs)
        ]
        if not found:
            return of(self.parts[0], configs)
        result = np.empty((len(configs), found[0][1].shape[1]), dtype=np.float32)
        for rows, values in found:
            result[rows] = values
        return result

    def nodes(self, configs: Configs) -> Nodes:
        found = [
            (rows, part.nodes(self._own(k, configs[rows])))
            for k, part, rows in self._by_part(configs)
        ]
        slots, width = self._slots
        values = np.zeros((len(configs), slots, width), dtype=np.float32)
        parent = np.full((len(configs), slots), ABSENT, dtype=np.int16)
        for rows, trees in found:
            values[rows, : trees.values.shape[1]] = trees.values
            parent[rows, : trees.parent.shape[1]] = trees.parent
        return Nodes(values, parent)

    @cached_property
    def _slots(self) -> tuple[int, int]:
        """Room for nodes of the part with the most, and numbers of a node."""
        shapes = [p.nodes(p.heuristic()[None]).values.shape for p in self.parts]
        return max(s[1] for s in shapes), shapes[0][2]

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        """Equal shares of all algorithms, in random order."""
        part = rng.integers(len(self.parts), size=n)
        found = [
            self._joined(k, p.sample(int((part == k).sum()), rng)) for k, p in enumerate(self.parts)
        ]
        return np.concatenate(found)[rng.permutation(n)]

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        result = np.empty((len(configs), self.width), dtype=np.int32)
        for k, part, rows in self._by_part(configs):
            result[rows] = self._joined(k, part.neighbours(self._own(k, configs[rows]), rng))
        if len(self.parts) > 1:
            jumps = np.flatnonzero(rng.random(len(configs)) < JUMPS)
            result[jumps] = self.sample(len(jumps), rng)
        return result

    def heuristic(self) -> NDArray[np.int32]:
        """The first candidate of the algorithm that is measured first."""
        first: NDArray[np.int32] = self.firsts()[0]
        return first

    def firsts(self) -> Configs:
        """The first candidate of each algorithm; where one is `alone` only its own: a
        search comes to those of the others."""
        found = [self._joined(k, p.heuristic()[None]) for k, p in enumerate(self.parts)]
        return np.concatenate([found[k] for k in self._most_promising_first()])

    def _most_promising_first(self) -> list[int]:
        """Positions of the parts in the order in which their first candidates are measured; only
        that of the one that is `alone`, where there is one."""
        orders = [algorithm_of(p.algorithm).order for p in self.parts]
        if "alone" in orders:
            return [orders.index("alone")]
        ranked = [k for k, order in enumerate(orders) if order == "estimated"]
        estimates = {k: estimate(self.parts[k]) for k in ranked} if len(ranked) > 1 else {}
        first = [k for k, order in enumerate(orders) if order == "first"]
        last = [k for k, order in enumerate(orders) if order == "last"]
        return [*first, *sorted(ranked, key=lambda k: estimates.get(k, 0.0)), *last]

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        k = int(self.part_of(config[None])[0])
        return self.parts[k].schedule(self._own(k, config[None])[0])

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        for k, part in enumerate(self.parts):
            if (found := part.locate(schedule)) is not None:
                config: NDArray[np.int32] = self._joined(k, found[None])[0]
                return config
        return None


def estimate(part: AlgorithmSpace) -> float:
    """The time of a part's first candidate, as a multiple of the kernel's multiply-adds at peak.

    It is that of the slowest part of the processor.  Checks of borders are left out: parts of a
    split reduction look like a window, and have no border.
    """
    features = part.features(part.heuristic()[None])
    cost = {name: float(2.0 ** features[0, COLUMN[f"cost_{name}"]]) for name in COSTS}
    slowest = max(cost["core"] - cost["checks"], cost["l1"], cost["l2"], cost["l3"])
    return float(slowest + cost["packing"] + cost["waking"])

"""The space of a kernel with all its algorithms: `space_of` is what searches ask for.

Column 0 of a config counts the sketches of all algorithms, one after the other; the columns behind
are the knobs of the algorithm's own space, and zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules import cpu
from hlotune.schedules.compute import Compute
from hlotune.schedules.costs import plain_work
from hlotune.schedules.cpu import CpuSpace
from hlotune.schedules.dots import DOTS, dots, grouping, has_instruction
from hlotune.schedules.expr import loads
from hlotune.schedules.loop_trees import ABSENT, Nodes
from hlotune.schedules.matrix_space import matrix_space
from hlotune.schedules.roles import Contraction, contraction
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.space import Configs, within
from hlotune.schedules.split_space import SplitSpace, estimate, split_spaces
from hlotune.schedules.target import Target
from hlotune.schedules.transforms import LOOSE, PAIRS
from hlotune.schedules.widened import WIDENED, can_widen, widened
from hlotune.schedules.winograd import window
from hlotune.schedules.winograd_space import WinogradSpace

JUMPS = 0.03
"""Share of moves to another algorithm."""
Part = CpuSpace | SplitSpace | WinogradSpace


def space_of(
    compute: Compute, target: Target, *, reorders_only: bool = False, fast: bool = False
) -> "CpuSpace | AlgorithmsSpace":
    """All schedules of a kernel; with `reorders_only` those that do nothing but reorder sums.

    With `fast` also those of algorithms whose errors are for numerics `fast` alone.

    Raises UnsupportedKernel where there is no rule for the compute, or no legal schedule.
    """
    direct = cpu.space_of(compute, target)
    narrow = matrix_space(compute, target), dots_space(compute, target)
    ahead = (*narrow, None if any(narrow) else widened_space(compute, target))
    first: tuple[Part, ...] = (*(x for x in ahead if x is not None), direct)
    rest: tuple[Part, ...] = split_spaces(compute, target)
    rest += () if reorders_only else winograd_spaces(compute, target, fast=fast)
    return AlgorithmsSpace((*first, *rest)) if len(first) + len(rest) > 1 else direct


def dots_space(compute: Compute, target: Target) -> CpuSpace | None:
    """The space of dot instructions, where kernel and target allow them."""
    group = grouping(compute)
    if group is None or not has_instruction(target, group):
        return None
    space = CpuSpace(contraction(dots(compute)), target, DOTS, plain_work(group.contraction))
    return space if space.legal(space.heuristic()[None])[0] else None


def widened_space(compute: Compute, target: Target) -> CpuSpace | None:
    """The space of operands widened as they are packed, where the kernel has any."""
    if not can_widen(compute):
        return None
    space = CpuSpace(contraction(widened(compute)), target, WIDENED)
    return space if space.legal(space.heuristic()[None])[0] else None


def winograd_spaces(
    compute: Compute, target: Target, *, fast: bool = False
) -> tuple[WinogradSpace, ...]:
    """The spaces of those Winograd algorithms that have a legal schedule."""
    w = window(compute)
    if w is None:
        return ()
    tensors = {x.tensor for x in loads(w.taps)}
    stored = {t.name for t in compute.tensors if t.role == "constant"}
    users = [s.name for s in compute.stages for x in s.loads if x.tensor in tensors]
    preload = len(tensors) == 1 and tensors <= stored and len(users) == 1
    allowed = [m for m in PAIRS if fast or m not in LOOSE]
    spaces = (WinogradSpace(compute, m, target, preload) for m in allowed)
    return tuple(s for s in spaces if s.legal(s.heuristic()[None])[0])


@dataclass(frozen=True)
class AlgorithmsSpace:
    parts: tuple[Part, ...]
    """In the order in which their first candidates are measured."""

    @property
    def direct(self) -> CpuSpace:
        return next(p for p in self.parts if isinstance(p, CpuSpace) and p.algorithm == "direct")

    @property
    def contraction(self) -> Contraction:
        return self.direct.contraction

    @property
    def target(self) -> Target:
        return self.direct.target

    @property
    def sketches(self) -> tuple[object, ...]:
        return tuple(s for part in self.parts for s in part.sketches)

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

    def _by_part(self, configs: Configs) -> list[tuple[int, Part, NDArray[np.int64]]]:
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
        def of(part: Part, own: Configs) -> NDArray[np.float32]:
            return part.features(own)

        return self._gathered(configs, of)

    def _gathered(
        self, configs: Configs, of: Callable[[Part, Configs], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        found = [
            (rows, of(part, self._own(k, configs[rows])))
            for k, part, rows in self._by_part(configs)
        ]
        if not found:
            return of(self.direct, configs)
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
        """The first candidate of the first algorithm, or of a split that promises more."""
        first: NDArray[np.int32] = self.firsts()[0]
        return first

    def firsts(self) -> Configs:
        """The first candidate of each algorithm."""
        found = [self._joined(k, p.heuristic()[None]) for k, p in enumerate(self.parts)]
        return np.concatenate([found[k] for k in self._most_promising_first()])

    def _most_promising_first(self) -> list[int]:
        """Matrix units, dots, those that only reorder sums by estimated time, then the others."""
        direct = self.parts.index(self.direct)
        estimates = {direct: estimate(self.direct.features(self.direct.heuristic()[None]))}
        estimates |= {
            k: p.estimate() for k, p in enumerate(self.parts) if isinstance(p, SplitSpace)
        }
        behind = [k for k in range(direct, len(self.parts)) if k not in estimates]
        return [*range(direct), *sorted(estimates, key=lambda k: estimates[k]), *behind]

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        k = int(self.part_of(config[None])[0])
        return self.parts[k].schedule(self._own(k, config[None])[0])

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        for k, part in enumerate(self.parts):
            if (found := part.locate(schedule)) is not None:
                config: NDArray[np.int32] = self._joined(k, found[None])[0]
                return config
        return None

"""What a nest does inside each of its loops, as arrays over populations.

Loops of one iteration are left out and the others moved together, so that equal nests give equal
numbers whatever sketch they were reached through.  Level k is the body inside the first k loops:
level 0 the whole nest, the last the innermost statement.  Arrays are `(levels, n)` with the configs
last, which keeps the arithmetic over configs contiguous, in float32.

A level's sizes are means over its executions: an axis of 10 in tiles of 4 has 3 tiles of 3.33, so
that sizes times executions give the true volume and ragged ends count for what they are.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.expr import Load
from hlotune.schedules.paths import KINDS, NOT_PACKED, Ints, Path
from hlotune.schedules.roles import Contraction
from hlotune.schedules.target import LINE_BYTES, Target

Floats = NDArray[np.floating[Any]]
OPERANDS = 3
"""Operands that features tell apart; contractions with more are described by their first."""
SERIAL, PARALLEL, UNROLL, VECTORIZE = range(len(KINDS))
GAP_BYTES = LINE_BYTES - 0.5
"""What lies less apart shares lines.  No whole number, so that rounding does not decide."""
NONE = -1
"""The axis of a loop that is not there."""


@dataclass(frozen=True)
class Levels:
    """`n` nests of one contraction; A axes, parallel first, and at most L loops that iterate."""

    c: Contraction
    target: Target
    lanes: int
    axis: Ints
    """`(L, n)`: outermost first; NONE behind a nest's last loop."""
    trips: Floats
    kind: Ints
    held: Ints
    """`(n,)`: level at which the results are in registers."""
    split: Ints
    """`(n,)`: level at which the contraction's own loops begin."""
    packs: Ints
    """`(operands, n)`: level at which each operand is packed, or LOAD, CALL, NOT_PACKED."""
    path: Path

    @property
    def count(self) -> int:
        return int(self.axis.shape[1])

    @cached_property
    def depth(self) -> Ints:
        """`(n,)`: loops of each nest, and the level of its innermost statement."""
        depth: Ints = (self.axis != NONE).sum(axis=0)
        return depth

    @cached_property
    def inner(self) -> Ints:
        """`(n,)`: level inside the innermost loop that is not written out."""
        written: Ints = (self.kind >= UNROLL).sum(axis=0)
        return self.depth - written

    @cached_property
    def task(self) -> Ints:
        """`(n,)`: level inside the loops that run as tasks, which are the outermost."""
        task: Ints = (self.kind == PARALLEL).sum(axis=0)
        return task

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the axes, in the order of their numbers."""
        return tuple(a.name for a in (*self.c.parallel, *self.c.reduce))

    @cached_property
    def extents(self) -> Floats:
        return np.array([a.extent for a in (*self.c.parallel, *self.c.reduce)], dtype=np.float32)

    @cached_property
    def along(self) -> NDArray[np.bool_]:
        """`(A, L, n)`: which loop walks which axis."""
        numbers = np.arange(len(self.extents)).reshape(-1, 1, 1)
        along: NDArray[np.bool_] = self.axis[None] == numbers
        return along

    @cached_property
    def steps(self) -> Floats:
        """`(A, L + 1, n)`: elements of an axis that one execution of a level walks at most."""
        loops, n = self.axis.shape
        steps = np.ones((len(self.names), loops + 1, n), dtype=np.float32)
        for k in range(loops - 1, -1, -1):
            own = np.where(self.along[:, k], self.trips[k], np.float32(1))
            np.multiply(steps[:, k + 1], own, out=steps[:, k])
        return np.minimum(steps, self.extents.reshape(-1, 1, 1), out=steps)

    @cached_property
    def pieces(self) -> Floats:
        """`(A, L + 1, n)`: into how many pieces an axis is cut outside each level."""
        pieces: Floats = np.ceil(self.extents.reshape(-1, 1, 1) / self.steps)
        return pieces

    @cached_property
    def sizes(self) -> Floats:
        """`(A, L + 1, n)`: elements of an axis that one execution of a level walks, in the mean."""
        sizes: Floats = self.extents.reshape(-1, 1, 1) / self.pieces
        return sizes

    @cached_property
    def runs(self) -> Floats:
        """`(L + 1, n)`: how often each level is executed."""
        runs: Floats = self.pieces.prod(axis=0)
        return runs

    @cached_property
    def tile(self) -> tuple[Floats, Floats]:
        """`(n,)` each: rows and vectors of the register tile."""
        unrolled = (self.kind == UNROLL) & (self.axis < len(self.c.parallel))
        across = unrolled & (self.axis == self.lane_axis)
        trips = self.trips
        rows: Floats = np.where(unrolled & ~across, trips, np.float32(1)).prod(axis=0)
        vectors: Floats = np.where(across, trips, np.float32(1)).prod(axis=0)
        return rows, vectors

    @cached_property
    def lane_axis(self) -> Ints:
        """`(n,)`: the axis that vectors run along; NONE where no vector has two lanes in use."""
        axis: Ints = np.where(self.kind == VECTORIZE, self.axis, NONE).max(axis=0, initial=NONE)
        return axis

    @cached_property
    def lane_strides(self) -> tuple[Ints, ...]:
        """`(n,)` by operand: elements between what neighbouring lanes load, where it lies."""
        return tuple(
            np.array([*(abs(self.c.stride(x, a)) for a in self.names), 0])[self.lane_axis]
            for x in self.c.operands[:OPERANDS]
        )

    @cached_property
    def lane_kinds(self) -> tuple[Ints, ...]:
        """`(n,)` by operand: 0 all lanes load one element, 1 neighbours, 2 others."""
        return tuple(
            np.minimum(stride, np.where(self.packs[k] == NOT_PACKED, 2, 1))
            for k, stride in enumerate(self.lane_strides)
        )

    @cached_property
    def window_levels(self) -> tuple[Ints | None, ...]:
        """`(n,)` by operand: level inside the innermost serial loop that moves its window.

        None where it has none.
        """
        serial = (self.kind == SERIAL) & (self.axis != NONE)
        levels = np.arange(1, len(self.axis) + 1).reshape(-1, 1)
        result: list[Ints | None] = []
        for x in self.c.operands[:OPERANDS]:
            moving = [n for n, a in enumerate(self.names) if a in windows(x)]
            inside = serial & self.along[moving].any(axis=0)
            deepest: Ints = np.where(inside, levels, 0).max(axis=0, initial=0)
            result.append(deepest if moving else None)
        return tuple(result)

    @cached_property
    def operands(self) -> tuple["Touched", ...]:
        """What is touched of each operand."""
        return tuple(
            _touched(self, x, self.packs[k] != NOT_PACKED)
            for k, x in enumerate(self.c.operands[:OPERANDS])
        )

    def span(self, steps: tuple[tuple[str, float], ...]) -> Floats:
        """`(L + 1, n)`: elements of a dimension along which axes go in such steps.

        Kept: operands and result share dimensions.
        """
        if steps not in self._spans:
            span = np.ones(self.runs.shape, dtype=np.float32)
            for a, step in steps:
                span += np.float32(step) * (self.sizes[self.names.index(a)] - 1)
            self._spans[steps] = span
        return self._spans[steps]

    @cached_property
    def _spans(self) -> dict[tuple[tuple[str, float], ...], Floats]:
        return {}

    @cached_property
    def sums(self) -> Floats:
        """`(L + 1, n)`: results that one execution of each level adds to."""
        sums: Floats = self.sizes[: len(self.c.parallel)].prod(axis=0)
        return sums

    @cached_property
    def result(self) -> "Touched":
        """What is touched of the results, as the last stage stores them."""
        store = self.c.out.stores[0]
        dtype = self.c.compute.tensor(store.tensor).dtype
        return _touched(self, Load(store.tensor, store.index, dtype), np.zeros(self.count, bool))

    @cached_property
    def code(self) -> Floats:
        """`(L + 1, n)`: statements that one execution of a level has written out."""
        own = np.where(self.kind == UNROLL, self.trips, np.float32(1))
        code = np.ones((len(own) + 1, self.count), dtype=np.float32)
        np.multiply.accumulate(own[::-1], axis=0, out=code[-2::-1])
        return code

    @cached_property
    def lanes_used(self) -> Floats:
        """`(n,)`: share of the lanes of vectors that hold something, whole vectors counted."""
        extents = np.append(self.extents, np.float32(1))  # NONE: one lane of each vector
        wide: Floats = extents[self.lane_axis]
        used: Floats = wide / (np.ceil(wide / self.lanes) * self.lanes)
        return used

    @property
    def flops(self) -> np.float32:
        """Of the sums, padding included."""
        return np.float32(2 * np.prod(self.extents.astype(np.float64)))

    @cached_property
    def footprint(self) -> Floats:
        """`(L + 1, n)`: bytes of all buffers that one execution of a level touches."""
        return sum((x.bytes for x in self.operands), self.result.bytes)

    def at(self, values: Floats, level: Ints) -> Floats:
        """`(n,)`: what stands at one level of each nest."""
        known = self._places.get(id(level))
        if known is None:  # kept with its level, so that the number stays that of this array
            known = self._places[id(level)] = level, level * self.count + np.arange(self.count)
        found: Floats = values.reshape(-1).take(known[1])
        return found

    @cached_property
    def _places(self) -> dict[int, tuple[Ints, Ints]]:
        """By the number of an array of levels: where they stand in `(levels, n)` laid in a row."""
        return {}


@dataclass(frozen=True)
class Touched:
    """What one execution of each level touches of a buffer, `(L + 1, n)`."""

    bytes: Floats
    """Of cache lines: a run shorter than a line costs a line."""
    elements: Floats
    run: Floats
    """Bytes that lie together."""


def levels_of(c: Contraction, target: Target, lanes: int, path: Path, depth: int = 0) -> Levels:
    """The levels of `n` paths, with room for at least `depth` loops."""
    live = path.trips.T > 1
    slots, n = live.shape
    before = np.zeros((slots + 1, n), dtype=np.int64)
    np.cumsum(live, axis=0, out=before[1:])
    loops, nests = max(depth, int(before[-1].max(initial=0))), np.arange(n)
    found = np.flatnonzero(live)
    slot, nest = np.divmod(found, max(n, 1))
    source, place = nest * slots + slot, before.ravel()[found] * n + nest

    def moved(values: Ints, fill: int) -> Ints:
        result = np.full(loops * n, fill, dtype=np.int64)
        result[place] = values.ravel()[source]
        return result.reshape(loops, n)

    packs = path.packs.T
    return Levels(
        c=c, target=target, lanes=lanes, path=path,
        axis=moved(path.axis, NONE),
        trips=moved(path.trips, 1).astype(np.float32),
        kind=moved(path.kind, 0),
        held=before[path.held_from, nests],
        split=before[path.split_from, nests],
        packs=np.where(packs < 0, packs, before[np.maximum(packs, 0) + 1, nests]),
    )  # fmt: skip


def windows(x: Load) -> frozenset[str]:
    """Axes that a load reads along through a window: several move one dimension."""
    return frozenset(a for e in x.index if len(e.terms) > 1 for a, _ in e.terms)


def _touched(v: Levels, x: Load, packed: NDArray[np.bool_]) -> Touched:
    """Dimensions from the fastest on: what a gap of less than a line parts lies together."""
    tensor, size = v.c.compute.tensor(x.tensor), v.c.element_bytes(x)
    elements = np.ones(v.runs.shape, dtype=np.float32)
    runs, run = elements, elements * size
    for d in range(len(x.index) - 1, -1, -1):
        steps = tuple((a, abs(w) / x.divisor(d)) for a, w in x.index[d].terms)
        span = np.minimum(v.span(steps), np.float32(tensor.shape[d]))
        pitch = np.float32(tensor.strides[d] * size)
        near = pitch - run < GAP_BYTES
        run = np.where(near, run + (span - 1) * pitch, run)
        runs = np.where(near, runs, runs * span)
        elements = elements * span
    run = np.where(packed, elements * size, run)
    runs = np.where(packed, np.float32(1), runs)
    return Touched(runs * np.maximum(run, LINE_BYTES), elements, run)

"""What a nest does inside each of its loops, as arrays over populations.

Loops of one iteration are left out and the others moved together, so that equal nests give equal
numbers whatever sketch they were reached through.  Level k is the body inside the first k loops:
level 0 the whole nest, the last the innermost statement.  Arrays are `(levels, n)` with the configs
last, which keeps the arithmetic over configs contiguous, in float32.

A level's sizes are means over its executions: an axis of 10 in tiles of 4 has 3 tiles of 3.33, so
that sizes times executions give the true volume and ragged ends count for what they are.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.footprint import Floats, Touched, touch
from hlotune.schedules.features.loop_paths import KINDS, NOT_PACKED, Ints, Path
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.targets.cpu import CpuTarget

OPERANDS = 3
"""Operands that features tell apart; contractions with more are described by their first."""
SERIAL, PARALLEL, UNROLL, VECTORIZE = range(len(KINDS))
NONE = -1
"""The axis of a loop that is not there."""


@dataclass(frozen=True)
class Levels:
    """`n` nests of one contraction; A axes, parallel first, and at most L loops that iterate."""

    c: Contraction
    target: CpuTarget
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

    @cached_property
    def count(self) -> int:
        return int(self.axis.shape[1])

    @cached_property
    def depth(self) -> Ints:
        """`(n,)`: loops of each nest, and the level of its innermost statement."""
        depth: Ints = (self.axis != NONE).sum(axis=0)
        return depth

    @cached_property
    def around(self) -> Ints:
        """`(n,)`: level around the innermost loop that is not written out."""
        around: Ints = np.maximum(self.inner - 1, 0)
        return around

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
        """The names of the axes, in the order of their numbers."""
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
    def reduces_lanes(self) -> NDArray[np.bool_]:
        """`(n,)`: whether vectors run along a reduction."""
        along: NDArray[np.bool_] = self.lane_axis >= len(self.c.parallel)
        return along

    @cached_property
    def lane_strides(self) -> Ints:
        """`(operands, n)`: elements between what neighbouring lanes load, where it lies."""
        strides: Ints = strides_of(self.c)[:, self.lane_axis]
        return strides

    @cached_property
    def lane_kinds(self) -> Ints:
        """`(operands, n)`: 0 all lanes load one element, 1 neighbours, 2 others."""
        kinds: Ints = np.minimum(self.lane_strides, np.where(self.is_plain, 2, 1))
        return kinds

    @cached_property
    def is_plain(self) -> NDArray[np.bool_]:
        """`(operands, n)`: what is read where it lies."""
        plain: NDArray[np.bool_] = self.packs[:OPERANDS] == NOT_PACKED
        return plain

    @cached_property
    def window_levels(self) -> tuple[Ints | None, ...]:
        """`(n,)` by operand: level inside the innermost serial loop that moves its window.

        None where it has none.
        """
        moving = [_windows(x) for x in self.c.operands[:OPERANDS]]
        return tuple(self.moved_at(axes) if axes else None for axes in moving)

    def moved_at(self, axes: frozenset[str]) -> Ints:
        """`(n,)`: level inside the innermost serial loop that walks one of some axes."""
        if axes not in self._moved_at:
            walked = self.along[[n for n, a in enumerate(self.names) if a in axes]].any(axis=0)
            self._moved_at[axes] = deepest(walked & (self.kind == SERIAL))
        return self._moved_at[axes]

    @cached_property
    def _moved_at(self) -> dict[frozenset[str], Ints]:
        return {}

    @cached_property
    def touched(self) -> Touched:
        """What is touched of all buffers: `(operands and the result, L + 1, n)`."""
        store = self.c.out.stores[0]
        dtype = self.c.compute.tensor(store.tensor).dtype
        stored = Load(store.tensor, store.index, dtype, lookups=store.lookups)
        result = self.c.out.walked(stored)
        buffers = (*self.c.operands[:OPERANDS], result)
        all_of_them = np.empty((3, len(buffers), *self.runs.shape), dtype=np.float32)
        whole = Touched(*all_of_them)
        for k, x in enumerate(buffers):
            plain = self.is_plain[k] if x is not result else np.ones(self.count, bool)
            touch(self, x, plain, whole[k])
        return whole

    @property
    def operands(self) -> tuple[Touched, ...]:
        """What is touched of each operand."""
        return tuple(self.touched[k] for k in range(len(self.touched.bytes) - 1))

    @property
    def result(self) -> Touched:
        """What is touched of the results, as the last stage stores them."""
        return self.touched[-1]

    def span(self, steps: tuple[tuple[str, float], ...]) -> Floats:
        """`(L + 1, n)`: elements of a dimension along which axes go in such steps.

        Kept: operands and result share dimensions.
        """
        if steps not in self._spans:
            span = np.ones(self.runs.shape, dtype=np.float32)
            for a, step in steps:
                beyond = self._beyond[self.names.index(a)]
                span += beyond if step == 1 else np.float32(step) * beyond
            self._spans[steps] = span
        return self._spans[steps]

    @cached_property
    def _spans(self) -> dict[tuple[tuple[str, float], ...], Floats]:
        return {}

    @cached_property
    def _beyond(self) -> Floats:
        """`(A, L + 1, n)`: elements behind the first."""
        beyond: Floats = self.sizes - 1
        return beyond

    @cached_property
    def sums(self) -> Floats:
        """`(L + 1, n)`: results that one execution of each level adds to."""
        sums: Floats = self.sizes[: len(self.c.parallel)].prod(axis=0)
        return sums

    @cached_property
    def code(self) -> Floats:
        """`(L + 1, n)`: statements that one execution of a level has written out."""
        own = np.where(self.kind == UNROLL, self.trips, np.float32(1))
        code = np.ones((len(own) + 1, self.count), dtype=np.float32)
        np.multiply.accumulate(own[::-1], axis=0, out=code[-2::-1])
        return code

    @cached_property
    def lanes_used(self) -> Floats:
        """`(n,)`: share of the lanes of vectors that hold something, whole vectors counted; vectors
        of fewer lanes than the target's leave the others empty."""
        extents = np.append(self.extents, np.float32(1))  # NONE: one lane of each vector
        wide: Floats = extents[self.lane_axis]
        own = np.minimum(self.lane_trips, np.float32(self.lanes))
        used: Floats = wide / (np.ceil(wide / own) * self.lanes)
        return used

    @cached_property
    def lane_trips(self) -> Floats:
        """`(n,)`: elements that one vector statement covers; 1 without vectors."""
        trips: Floats = np.where(self.kind == VECTORIZE, self.trips, np.float32(1)).max(
            axis=0, initial=1
        )
        return trips

    @cached_property
    def flops(self) -> np.float32:
        """The operations of the sums, padding included."""
        return np.float32(2 * np.prod(self.extents.astype(np.float64)))

    @cached_property
    def footprint(self) -> Floats:
        """`(L + 1, n)`: bytes of all buffers that one execution of a level touches."""
        *operands, result = self.touched.bytes
        footprint: Floats = sum(operands, result)
        return footprint

    def at(self, values: NDArray[Any], level: Ints) -> NDArray[Any]:
        """What stands at one level of each nest, `(..., n)` of `(..., L + 1, n)`.

        Levels may be several for each nest, `(m, n)`, where values are `(L + 1, n)`.
        """
        laid = values.reshape(*values.shape[:-2], values.shape[-2] * self.count)
        found: NDArray[Any] = laid.take(self._place(level), axis=-1)
        return found

    def each_at(self, values: NDArray[Any], levels: Ints) -> NDArray[Any]:
        """`(..., m, n)`: what stands of each of `(m, L + 1, n)` at its own levels `(..., m, n)`."""
        first = np.arange(len(values)).reshape(-1, 1) * (values.shape[1] * self.count)
        found: NDArray[Any] = values.reshape(-1).take(self._place(levels) + first)
        return found

    def at_axis(self, values: NDArray[Any], axis: Ints, level: Ints) -> NDArray[Any]:
        """`(..., n)`: what stands of `(A, L + 1, n)` at one axis of each nest, at levels of it."""
        first = axis * (values.shape[1] * self.count)
        found: NDArray[Any] = values.reshape(-1).take(self._place(level) + first)
        return found

    def _place(self, level: Ints) -> Ints:
        """Where levels stand in `(levels, n)` laid in a row."""
        known = self._places.get(id(level))
        if known is None:  # kept with its level, so that the number stays that of this array
            known = self._places[id(level)] = level, level * self.count + self._nests
        return known[1]

    @cached_property
    def _nests(self) -> Ints:
        return np.arange(self.count)

    @cached_property
    def _places(self) -> dict[int, tuple[Ints, Ints]]:
        """By the number of an array of levels: the places of these."""
        return {}


def levels_of(c: Contraction, target: CpuTarget, lanes: int, path: Path, depth: int = 0) -> Levels:
    """The levels of `n` paths, with room for at least `depth` loops."""
    live = np.ascontiguousarray(path.trips.T) > 1
    slots, n = live.shape
    before = np.zeros((slots + 1, n), dtype=np.int64)
    for k in range(slots):
        np.add(before[k], live[k], out=before[k + 1])
    loops, nests = max(depth, int(before[-1].max(initial=0))), np.arange(n)
    slot, nest = np.nonzero(live)
    source, place = nest * slots + slot, before[slot, nest] * n + nest

    def moved(values: Ints, fill: int) -> Ints:
        result = np.full(loops * n, fill, dtype=np.int64)
        result[place] = values.take(source)
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


def deepest(inside: NDArray[np.bool_]) -> Ints:
    """`(..., n)`: the last level of `(..., L, n)`, counted from 1, that is meant; 0 for none."""
    levels = np.arange(1, inside.shape[-2] + 1, dtype=np.int16).reshape(-1, 1)
    last: NDArray[np.int16] = np.where(inside, levels, np.int16(0)).max(axis=-2, initial=0)
    return last.astype(np.int64)


def outermost(fits: NDArray[np.bool_]) -> Ints:
    """`(..., n)`: the first level of `(..., L, n)`, counted from 0, that is meant; L where none."""
    levels = np.arange(fits.shape[-2], dtype=np.int16).reshape(-1, 1)
    none = np.int16(len(levels))
    first: NDArray[np.int16] = np.where(fits, levels, none).min(axis=-2, initial=none)
    return first.astype(np.int64)


@lru_cache(maxsize=64)
def strides_of(c: Contraction) -> Ints:
    """`(operands, A + 1)`: elements between what neighbours along an axis load; 0 behind them."""
    axes = (*c.parallel, *c.reduce)
    strides = [[*(abs(c.stride(x, a.name)) for a in axes), 0] for x in c.operands[:OPERANDS]]
    return np.array(strides, dtype=np.int64).reshape(-1, len(axes) + 1)


def _windows(x: Load) -> frozenset[str]:
    """Axes that a load reads along through a window: several move one dimension."""
    return frozenset(a for e in x.index if len(e.terms) > 1 for a, _ in e.terms)

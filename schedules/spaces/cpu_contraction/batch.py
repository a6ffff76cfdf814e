"""Configs of a contraction's space as arrays of numbers: their paths, and which of them are legal.

Everything here states for thousands of configs at once what `sketch.py` and
`schedules/steps/limits.py` state for one, by the formulas of `schedules/steps/limit_formulas.py`.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.features.loop_paths import (
    CALL_LEVEL,
    KINDS,
    LOAD_LEVEL,
    NOT_PACKED,
    Ints,
    Path,
    as_bits,
)
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import PACK_LEVELS
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.limit_formulas import (
    MOST_BYTES,
    TASK_BYTES,
    bodies_of,
    has_code,
    vectors_of,
    whole_blocks,
)

SERIAL, PARALLEL, UNROLL, VECTORIZE = range(len(KINDS))
MOST_PACK_BYTES = np.array(
    [np.inf if x == "none" else MOST_BYTES.get(x, TASK_BYTES) for x in PACK_LEVELS]
)
"""By position in PACK_LEVELS."""


@dataclass(frozen=True)
class Population:
    """The numbers of `n` configs, each looked up when asked for; A parallel axes, R reduce axes."""

    space: ContractionSpace
    configs: Configs

    def values(self, kind: str) -> Ints:
        return self.space.knobs.values(kind, self.configs[:, 1:])

    @cached_property
    def sketch(self) -> Ints:
        return self.configs[:, 0].astype(np.int64)

    @cached_property
    def vector(self) -> Ints:
        """`(n,)`: number of the vectorized axis."""
        return self.space.tables.vector[self.sketch]

    @cached_property
    def chunked(self) -> NDArray[np.bool_]:
        return self.space.tables.chunked[self.sketch]

    @cached_property
    def packs(self) -> Ints:
        """`(n, operands)`: position in PACK_LEVELS."""
        return self.space.tables.packs[self.sketch]

    @cached_property
    def register(self) -> Ints:
        return self.values("register")

    @cached_property
    def block(self) -> Ints:
        return self.values("block")

    @cached_property
    def group(self) -> Ints:
        return self.values("group")

    @cached_property
    def unroll(self) -> Ints:
        return self.values("unroll")

    @cached_property
    def steps(self) -> Ints:
        return self.values("steps")

    def order(self, kind: str) -> Ints:
        """`(n, A or R)`: axes in an order of that kind, outermost first."""
        return self.space.knobs.orders[kind][self.values(kind)[:, 0]]

    @cached_property
    def borders(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """`(n, R)` and `(n, A)`: axes that are clipped, and peeled, in fact."""
        return _borders(self.space, self.configs, self.packs, self.unroll)

    @cached_property
    def prefetch(self) -> Ints:
        """`(n,)`: 1 where some operand's next panel is asked for in fact, 2 where rows are."""
        tables, asked = self.space.tables, self.values("prefetch")[:, 0]
        outermost = self.order("reduce_order")[:, 0]
        panels = tables.prefetched[self.sketch] & (asked == 1) & (self.streams == 1)
        rows = tables.streamed[self.sketch, outermost] & (asked == 2)
        prefetch: Ints = panels + 2 * rows
        return prefetch

    @cached_property
    def streams(self) -> Ints:
        """`(n,)`: panels that a register tile reads side by side in fact."""
        wide = np.take_along_axis(self.register, self.vector[:, None], 1)[:, 0]
        asked = self.values("streams").max(axis=1, initial=1)
        fits = self.space.tables.at_load[self.sketch] & (wide % asked == 0)
        streams: Ints = np.where(fits, asked, 1)
        return streams

    @cached_property
    def serial(self) -> NDArray[np.bool_]:
        """`(n,)`: whether one thread runs all tasks."""
        serial: NDArray[np.bool_] = (self.values("serial") == 1).any(axis=1)
        return serial


def _borders(
    space: ContractionSpace, configs: Configs, levels: Ints, unroll: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Clips and peels that a sketch really makes: see `sketch._borders`."""
    c, knobs = space.contraction, space.knobs
    n, positions = len(configs), configs[:, 1:]
    clip = np.zeros((n, len(c.reduce)), dtype=bool)
    peel = np.zeros((n, len(c.parallel)), dtype=bool)
    for kind, axes, result in (("clip", c.reduce, clip), ("peel", c.parallel, peel)):
        names = [a.name for a in axes]
        for column in knobs.columns(kind):
            axis = knobs.knobs[column].axis
            needed = _needed(c, levels, axis) | (axis in c.phases)
            result[:, names.index(axis)] = needed & (positions[:, column] == 1)
    return clip & (unroll == 1), peel


def _needed(c: Contraction, levels: Ints, axis: str) -> NDArray[np.bool_]:
    """Configs in which some operand that is not packed is read through a window along the axis."""
    packable = [x.tensor for x in c.operands]
    result = np.zeros(len(levels), dtype=bool)
    for x in c.windows[axis]:
        result |= x.tensor not in packable or levels[:, packable.index(x.tensor)] == 0
    return result


@dataclass(frozen=True)
class Sizes:
    """Sizes of tiles, `(n, axes)`: what one iteration of each level walks; trips of the levels."""

    width: Ints
    inside: tuple[Ints, Ints, Ints]
    """Parallel axes: inside a task, a group, a register tile."""
    trips: tuple[Ints, Ints, Ints]
    chunk: Ints
    """Reduce axes: inside a chunk."""
    reduce_trips: tuple[Ints, Ints, Ints]


def sizes(space: ContractionSpace, p: Population) -> Sizes:
    extents = space.tables.parallel
    lanes = np.where(np.arange(len(extents)) == p.vector[:, None], space.lanes, 1)
    width = p.register * lanes
    inside, trips, current = [], [], np.broadcast_to(extents, width.shape)
    for step in (p.group * p.block * width, p.block * width, width):
        trips.append(-(-current // step))
        current = np.minimum(step, current)
        inside.append(current)
    reduce = np.broadcast_to(space.tables.reduce, p.unroll.shape)
    whole = -(-reduce // p.unroll) * p.unroll
    chunk_step = np.where(p.chunked[:, None], p.steps * p.unroll, whole)
    chunk = np.minimum(chunk_step, reduce)
    return Sizes(
        width=width,
        inside=(inside[0], inside[1], inside[2]),
        trips=(trips[0], trips[1], trips[2]),
        chunk=chunk,
        reduce_trips=(-(-reduce // chunk_step), -(-chunk // p.unroll), np.minimum(p.unroll, chunk)),
    )


def path_of_population(space: ContractionSpace, p: Population) -> Path:
    c, s = space.contraction, sizes(space, p)
    a, r = len(c.parallel), len(c.reduce)
    take = np.take_along_axis
    tile_axis, tile_trips = _tile_slots(space, p, s)
    reduce_order = p.order("reduce_order")
    parallel = [p.order(k) for k in ("task_order", "group_order", "tile_order")]
    axis = [*parallel, *[reduce_order + a] * 3, tile_axis]
    trips = [take(t, o, 1) for t, o in zip(s.trips, parallel, strict=True)]
    trips += [take(t, reduce_order, 1) for t in s.reduce_trips] + [tile_trips]
    kind = [PARALLEL] * a + [SERIAL] * (2 * a + 2 * r) + [UNROLL] * (r + a) + [VECTORIZE]
    kinds = np.tile(np.array(kind), (len(p.sketch), 1))
    kinds[:, :a] = np.where(p.serial[:, None], SERIAL, PARALLEL)
    clip, peel = p.borders
    slots = np.array([NOT_PACKED, LOAD_LEVEL, CALL_LEVEL, a - 1, 2 * a - 1, 2 * a + r - 1])
    return Path(
        axis=_arranged(axis, p.chunked),
        trips=_arranged(trips, p.chunked),
        kind=kinds,
        held_from=np.where(p.chunked, 3 * a + r, 3 * a),
        split_from=np.where(p.chunked, 2 * a, 3 * a),
        packs=slots[p.packs],
        panels=_panels(space, p),
        borders=np.stack([as_bits(clip, len(c.parallel)), as_bits(peel)], axis=1),
        handed_over=(~p.chunked & space.hands_over).astype(np.int64),
        prefetch=p.prefetch,
        asked_along=np.where(p.prefetch == 2, a + reduce_order[:, 0], -1),
        spacing=np.zeros(len(p.sketch), dtype=np.int64),
        beyond=np.zeros(len(p.sketch), dtype=np.int64),
    )


def _arranged(parts: list[Ints], chunked: NDArray[np.bool_]) -> Ints:
    """Tasks, groups, tiles, chunks, ...; where reductions are cut, chunks stand around tiles."""
    tasks, groups, tiles, chunks, *inner = parts
    whole = np.concatenate([tiles, chunks], axis=1)
    cut = np.concatenate([chunks, tiles], axis=1)
    middle = np.where(chunked[:, None], cut, whole)
    return np.concatenate([tasks, groups, middle, *inner], axis=1)


def _tile_slots(space: ContractionSpace, p: Population, s: Sizes) -> tuple[Ints, Ints]:
    """The register tile: rows of the other axes, then vectors and lanes of the vectorized one."""
    a = len(space.contraction.parallel)
    table = np.array([[*(x for x in range(a) if x != v), v, v] for v in range(a)])
    axis = table[p.vector]
    trips = np.take_along_axis(s.inside[2], axis, 1)
    trips[:, -2] = -(-trips[:, -1] // space.lanes)
    trips[:, -1] = np.minimum(trips[:, -1], space.lanes)
    return axis, trips


def _panels(space: ContractionSpace, p: Population) -> Ints:
    """Block of each pack: whole vectors where a plain dimension of the operand runs along them."""
    wide = np.take_along_axis(p.register, p.vector[:, None], 1) * space.lanes
    blocked = space.tables.blocked.T[p.vector] >= 0
    at_load = p.packs == PACK_LEVELS.index("load")
    wide = np.where(at_load, wide // p.streams[:, None], wide)
    panels = np.gcd(wide, space.tables.digits.T[p.vector])
    return np.where(blocked & (p.packs > 0), panels, 1)


def legal_of(space: ContractionSpace, p: Population) -> NDArray[np.bool_]:
    """The limits of `schedules/steps/limits.py`, for all configs."""
    s = sizes(space, p)
    rows, across = tile_of(p.vector, s.inside[2], space.lanes)
    tile = rows * across
    bodies = _bodies(space, p, s)
    core, result = space.held(p.vector, s.inside[2], s.reduce_trips[2].prod(axis=1))
    core *= bodies * bodies_of(space.tables.reduce, p.unroll, s.chunk).prod(axis=1)
    plain = tile * bodies_of(space.tables.parallel, s.width, s.inside[1]).prod(axis=1)
    out = np.where(p.chunked, plain, tile * bodies)
    result &= has_code(core) & has_code(out)
    sums = s.inside[1].prod(axis=1, dtype=np.float64) * BYTES[space.contraction.dtype]
    result &= ~p.chunked | (sums <= TASK_BYTES)
    return result & _packs_fit(space, p, s)


def tile_of(vector: Ints, tile: Ints, lanes: int) -> tuple[Ints, Ints]:
    """Rows and vectors of register tiles, `(n,)` each, from their elements `(n, A)`."""
    wide = np.take_along_axis(tile, vector[:, None], 1)[:, 0]
    return tile.prod(axis=1) // wide, vectors_of(wide, lanes)


def _bodies(space: ContractionSpace, p: Population, s: Sizes) -> Ints:
    """Copies of the register tile: ragged ends and peeled borders of each axis multiply."""
    counts = bodies_of(space.tables.parallel, s.width, s.inside[1])
    _, peel = p.borders
    if peel.any():
        counts += np.where(peel, _border_tiles(space, p, s), 0)
    bodies: Ints = counts.prod(axis=1)
    return bodies


def _border_tiles(space: ContractionSpace, p: Population, s: Sizes) -> Ints:
    """Register tiles of each axis at which an operand that is not packed is read outside."""
    free = space.tables.free[as_bits(p.packs > 0)]
    tiles = -(-space.tables.parallel // s.width)
    first = -(-np.maximum(free[:, :, 0], 0) // s.width)
    last = np.minimum((free[:, :, 1] - s.width + 1) // s.width, tiles - 1)
    border: Ints = tiles - np.maximum(last - first + 1, 0)
    return border


def _packs_fit(space: ContractionSpace, p: Population, s: Sizes) -> NDArray[np.bool_]:
    result = np.ones(len(p.sketch), dtype=bool)
    panels = _panels(space, p)
    for k, x in enumerate(space.contraction.operands):
        extents = _extents(space, p, s, k)
        blocked = space.tables.blocked[k][p.vector][:, None] == np.arange(extents.shape[1])
        panel = panels[:, k : k + 1]
        rounded = np.where(blocked, whole_blocks(extents, panel), extents)
        size = rounded.prod(axis=1, dtype=np.float64) * BYTES[x.dtype]
        result &= size <= MOST_PACK_BYTES[p.packs[:, k]]
    return result


def _extents(space: ContractionSpace, p: Population, s: Sizes, k: int) -> Ints:
    """`(n, dimensions)`: the region of an operand that one pack copies."""
    t, level = space.tables, p.packs[:, k][:, None]
    parallel = np.where(level == PACK_LEVELS.index("task"), s.inside[0], s.inside[1])
    reduce = np.where(level == PACK_LEVELS.index("chunk"), s.chunk, t.reduce)
    walked = np.concatenate([parallel, reduce], axis=1)
    whole = np.concatenate([t.parallel, t.reduce])
    walked = np.where(level < PACK_LEVELS.index("task"), whole, walked)
    extents: Ints = np.minimum((walked - 1) @ t.spans[k] + 1, t.longest[k])
    return extents

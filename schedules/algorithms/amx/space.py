"""The space of a matrix unit: that of a contraction, with tiles for register tiles.

Tiles have as many groups as divide the reduction best, and rows along the axis on which they are
fullest.  What vectors run along is packed always; the other operand where its groups do not lie
together, or where borders would have to be checked.
"""

from dataclasses import replace
from functools import cached_property
from itertools import product
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.algorithm import Algorithm, constant
from hlotune.schedules.algorithms.amx.rewriting import MATRIX, matrix, matrix_contraction
from hlotune.schedules.algorithms.dot_instructions.rewriting import grouping
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.cost_terms import plain_work
from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction import space as cpu
from hlotune.schedules.spaces.cpu_contraction.first_candidate.build import groups_of, put_order
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import may_run_alone
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch, steps_of
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.knobs import Knob, Knobs, knobs_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Tensorize
from hlotune.schedules.steps.tile_products import Product, product_of, tile_registers
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.units import (
    AMX_GROUPS,
    AMX_LANES,
    AMX_REGISTERS,
    AMX_ROWS,
    has_matrix_unit,
)

MOST_TILES = 6
"""Along one axis."""
PRODUCT_CYCLES, LATENCY_CYCLES, LOAD_CYCLES = 16, 52, 13
"""Cycles of a product of two tiles, until its sum can be added to, and of a tile's load."""


def _rate(target: CpuTarget) -> float:
    """Sums that are added to in the time of one by vectors, as features count them."""
    return AMX_ROWS * AMX_GROUPS / PRODUCT_CYCLES / target.rates.multiply_adds


def matrix_space(compute: Compute, target: CpuTarget) -> "MatrixSpace | None":
    """The space of a matrix unit, where kernel and target allow it."""
    group = grouping(compute, signed=True)
    if group is None or not has_matrix_unit(target, group.instruction.group):
        return None
    c = matrix_contraction(compute, group)
    work = replace(plain_work(group.contraction), rate=_rate(target))
    space = MatrixSpace(c, target, MATRIX, work)
    return space if space.sketches and space.legal(space.heuristic()[None])[0] else None


def depth_of(extent: int) -> int:
    """Groups of a tile: those that divide a reduction best, for what is left takes long.

    Other tiles need another configuration, and the sums have to wait for it in memory.
    """
    whole = [n for n in range(min(extent, AMX_GROUPS), 0, -1) if extent % n == 0]
    return whole[0] if whole[0] > AMX_GROUPS // 2 else min(extent, AMX_GROUPS)


def rows_axis(c: Contraction, vector: str) -> str | None:
    """Along which tiles have their rows: where they are fullest, and then the longest."""
    found = [
        a
        for a in c.parallel
        if a.name not in c.apart and product_of(c.core, a.name, c.inner, vector)
    ]
    full = ((a.extent / (ceil(a.extent / AMX_ROWS) * AMX_ROWS), a.extent, a.name) for a in found)
    best = max(full, default=None)
    return best[2] if best else None


class MatrixSpace(CpuSpace):
    """Like that of vectors, but for what a register tile is, and how operands lie."""

    hands_over = False

    @cached_property
    def rows(self) -> dict[str, str]:
        """For each axis that vectors can run along the one that rows of tiles go along."""
        c = self.contraction
        found = {a.name: rows_axis(c, a.name) for a in c.parallel}
        return {v: rows for v, rows in found.items() if rows}

    def product(self, vector: str) -> Product:
        c = self.contraction
        found = product_of(c.core, self.rows[vector], c.inner, vector)
        assert found is not None
        return found

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        return tuple(s for s in cpu.sketches_of(self.contraction) if self._has_tiles(s))

    def _has_tiles(self, sketch: Sketch) -> bool:
        """Whether both operands lie as tiles take them."""
        if sketch.vector not in self.rows:
            return False
        found, packs = self.product(sketch.vector), dict(sketch.packs)
        packable = found.left.tensor in packs and packs.get(found.right.tensor, "none") != "none"
        return packable and (packs[found.left.tensor] != "none" or self._is_straight(found))

    def _is_straight(self, found: Product) -> bool:
        """Whether the left operand's groups lie together where it is, with no border to check."""
        c, x = self.contraction, found.left
        together = (
            x.dtype == c.compute.tensor(x.tensor).dtype and c.inner in x.index[-1].coefficients
        )
        whole = not guarded(c.compute, c.core, x) and c.compute.tensor(x.tensor).role != "temporary"
        return together and whole

    @cached_property
    def knobs(self) -> Knobs:
        c = self.contraction
        small = may_run_alone(c, self.target)
        plain = knobs_of(
            c.parallel, c.reduce, ((), ()), self.target.threads, apart=c.apart, small=small
        )
        return Knobs(tuple(self._knob(k) for k in plain.knobs), plain.orders)

    def _knob(self, knob: Knob) -> Knob:
        if knob.kind == "unroll":
            whole = knob.axis == self.contraction.inner
            depth = depth_of(self.contraction.core.extents[knob.axis]) if whole else 1
            return replace(knob, values=(depth,))
        if knob.kind == "register":
            return replace(knob, values=self._register(knob.axis))
        return replace(knob, values=(0, 1)) if knob.kind == "prefetch" else knob

    def _register(self, axis: str) -> tuple[int, ...]:
        """Rows, or vectors: as tiles they are whole ones, or equal shares of the axis."""
        extent, vectors = self.contraction.core.extents[axis], {1}
        if axis in self.contraction.apart:
            return (1,)
        if axis in self.rows.values():
            longest = AMX_ROWS * MOST_TILES
            shares = (n for n in range(1, longest + 1) if ceil(extent / ceil(extent / n)) == n)
            vectors |= {*shares, *range(AMX_ROWS, longest + 1, AMX_ROWS)}
        vectors |= set(range(1, MOST_TILES + 1))
        return tuple(sorted(n for n in vectors if n <= extent))

    def _tiles(self, vector: str) -> NDArray[np.int32]:
        names = [a.name for a in self.contraction.parallel]
        columns = self.knobs.columns("register")
        values = [
            self._usable(vector, a, self.knobs.knobs[k])
            for a, k in zip(names, columns, strict=True)
        ]
        fits = [
            row for row in product(*values) if self._fit(vector, dict(zip(names, row, strict=True)))
        ]
        places = [
            [self.knobs.knobs[k].values.index(n) for k, n in zip(columns, row, strict=True)]
            for row in fits
        ]
        return np.array(places, dtype=np.int32)

    def _usable(self, vector: str, axis: str, knob: Knob) -> tuple[int, ...]:
        """The values along an axis with which tiles can go along a vector."""
        if axis == self.rows[vector]:
            return knob.values
        alone = axis in self._alone(vector)
        return (1,) if alone else tuple(n for n in knob.values if n <= MOST_TILES)

    def _alone(self, vector: str) -> frozenset[str]:
        """Axes with one row a tile: the right operand varies along them, and no vector runs."""
        if vector not in self.rows:
            return frozenset()
        return frozenset(self.product(vector).right.axes) - {vector}

    def _fit(self, vector: str, tile: dict[str, int]) -> bool:
        rows = self.rows[vector]
        beside = prod(n for a, n in tile.items() if a not in (rows, vector))
        whole = (tile[vector] - 1) * AMX_LANES < self.contraction.core.extents[vector]
        return (
            whole
            and tile_registers(ceil(tile[rows] / AMX_ROWS) * beside, tile[vector]) <= AMX_REGISTERS
        )

    def held(self, vector: Ints, tile: Ints, unrolled: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Products of AMX tiles that are unrolled, and whether the unit's registers hold them."""
        names = [a.name for a in self.contraction.parallel]
        rows = np.array([names.index(self.rows.get(v, v)) for v in names])[vector][:, None]
        high = np.take_along_axis(tile, rows, 1)[:, 0]
        wide = np.take_along_axis(tile, vector[:, None], 1)[:, 0]
        count = -(-high // AMX_ROWS) * (tile.prod(axis=1) // (high * wide))
        across = -(-wide // AMX_LANES)
        fits = count * across + count + across <= AMX_REGISTERS
        alone = np.array([[a in self._alone(v) for a in names] for v in names])[vector]
        return count * across, fits & (~alone | (tile == 1)).all(axis=1)

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        c, sketch = self.contraction, self.sketches[int(config[0])]
        steps = steps_of(c, sketch, self.tiling(config), self.lanes)
        tiles = Tensorize(c.core.name, self.rows[sketch.vector], c.inner)
        return Schedule(self.algorithm, (*steps, tiles))

    # the first candidate --------------------------------------------------------------------------

    def heuristic(self) -> NDArray[np.int32]:
        """Tiles that lose least; packs that are too large for a place are made in a smaller one."""
        for left, right in (("task", "call"), ("block", "call"), ("task", "task")):
            config = self._first(left, right)
            if self.legal(config[None])[0]:
                return config
        return self._first("block", "block")

    def _first(self, left: str, right: str) -> NDArray[np.int32]:
        c, sketch = self.contraction, self._sketch(left, right)
        config = np.zeros(1 + len(self.knobs.knobs), dtype=np.int32)
        config[0] = self.sketches.index(self._sketch("block", right))
        columns = 1 + np.array(self.knobs.columns("register"))
        config[columns] = self._best_tile(sketch.vector)
        self.knobs.put(config, "block", np.ones(len(columns), dtype=np.int64))
        names = [a.name for a in c.parallel]
        v = names.index(sketch.vector)
        rest = [k for k in range(len(names)) if k != v]
        for kind in ("group_order", "tile_order"):
            put_order(self, config, kind, [v, *rest])
        self.knobs.put(config, "group", groups_of(self, config))
        config[0] = self.sketches.index(sketch)
        return config

    def _sketch(self, left: str, right: str) -> Sketch:
        """Vectors along what lies together in the result; constants are packed as they load."""
        vectors = dict.fromkeys(s.vector for s in self.sketches)
        vector = min(vectors, key=lambda v: (self.contraction.out_stride(v) != 1, v))
        found, c = self.product(vector), self.contraction
        loaded = {t for s in self.sketches for t, n in s.packs if n == "load"}
        packs = []
        for x in c.operands:
            level = right if x == found.right else left
            if x != found.right and self._is_straight(found):
                level = "none"
            elif x.tensor in loaded:
                level = "load"
            packs.append((x.tensor, level))
        return Sketch(vector, False, tuple(packs))

    def _best_tile(self, vector: str) -> NDArray[np.int32]:
        """Positions of the tile in which least of the unit's time is lost."""
        tiles, names = self.tiles[vector], [a.name for a in self.contraction.parallel]
        columns = self.knobs.columns("register")
        values = [
            [self.knobs.knobs[k].values[n] for k, n in zip(columns, row, strict=True)]
            for row in tiles
        ]
        costs = [self._cycles(vector, dict(zip(names, row, strict=True))) for row in values]
        best: NDArray[np.int32] = tiles[int(np.argmin(costs))]
        return best

    def _cycles(self, vector: str, tile: dict[str, int]) -> float:
        """The cycles of all register tiles together, for one tile of the reduction each."""
        rows, extents = self.rows[vector], self.contraction.core.extents
        beside = prod(n for a, n in tile.items() if a not in (rows, vector))
        high, wide = ceil(tile[rows] / AMX_ROWS) * beside, tile[vector]
        step = {**tile, vector: tile[vector] * AMX_LANES}
        count = prod(ceil(extents[a] / n) for a, n in step.items())
        busy = max(PRODUCT_CYCLES * high * wide, LATENCY_CYCLES)
        return count * (busy + LOAD_CYCLES * (high + wide))


def _spaces(compute: Compute, target: CpuTarget) -> tuple[MatrixSpace, ...]:
    space = matrix_space(compute, target)
    return () if space is None else (space,)


def _check_tensorized(nest: LoopNest) -> None:
    if not any(s.tiles for s in nest.stages):
        raise ScheduleError(
            "matrix: expected a step Tensorize, got none: vectors do not take such sums; add it"
        )


AMX = Algorithm(
    name=MATRIX,
    rewriting=constant(matrix),
    spaces=_spaces,
    order="first",
    check_nest=_check_tensorized,
)

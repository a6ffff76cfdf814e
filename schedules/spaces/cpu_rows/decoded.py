"""What configs mean: the loops of each stage, in groups of configs that have it in one form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_paths import KINDS, Ints
from hlotune.schedules.ir.borders import copies, pieces_of
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.bodies import (
    Blocks,
    Knobbed,
    Level,
    Sizes,
    blocks_within,
    inside_blocks,
    loops_of,
    register,
    sizes_of,
)
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.spaces.cpu_rows.partitions import Partition
from hlotune.schedules.spaces.cpu_rows.view import RowsKnobs
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.steps.limit_formulas import CODE_STATEMENTS


@dataclass(frozen=True)
class Placed:
    """One stage of some configs that have it in one form; arrays are over these, `(m,)`."""

    nest: Nest
    stage: Stage
    form: Form
    holds: bool
    at: Ints
    """Which configs these are."""
    sizes: Sizes
    outer: tuple[Level, ...]
    """The loops of the anchor around a member that walk axes which the member has too."""
    loops: tuple[Level, ...]
    block: Mapping[str, Ints]
    """By row axis of the nest: elements of an iteration over rows."""
    ahead: Ints
    """Bytes behind what is loaded that are asked for; 0 for none."""
    past: Ints
    """1 where results are stored past the caches."""
    borders: tuple[str, ...] = ()
    """Axes along which loads may lie outside of their tensors."""

    @cached_property
    def peeled(self) -> dict[str, NDArray[np.bool_]]:
        """By such axis, `(m,)`: whether the loop over its tiles is cut at borders."""
        trips, found = self.trips[len(self.outer) :], dict[str, NDArray[np.bool_]]()
        for x, n in zip(self.loops, trips, strict=True):
            if x.root in self.borders and x.kind == "serial":
                found[x.root] = (n > 1) & (self.sizes.peel > 0)
        return found

    @property
    def peeled_bits(self) -> Ints:
        """`(m,)`: the same as bits, by the numbers of the axes."""
        bits = np.zeros(len(self.at), dtype=np.int64)
        for k, a in enumerate(self.stage.axes):
            if a.name in self.peeled:
                bits += self.peeled[a.name].astype(np.int64) << k
        return bits

    @cached_property
    def trips(self) -> tuple[Ints, ...]:
        """Iterations of each loop in a full tile of the enclosing one, outer loops first."""
        sizes = {a.name: np.full(len(self.at), a.extent) for a in self.stage.axes}
        found = []
        for x in (*self.outer, *self.loops):
            found.append(-(-sizes[x.root] // x.step))
            sizes[x.root] = np.minimum(sizes[x.root], x.step)
        return tuple(found)

    def digest(self) -> NDArray[np.uint64]:
        """`(m,)`: a hash of the loops that iterate."""
        prime, numbers = (
            np.uint64(1099511628211),
            {a.name: n for n, a in enumerate(self.stage.axes)},
        )
        value = np.full(len(self.at), 1469598103934665603, dtype=np.uint64)
        for x, trips in zip((*self.outer, *self.loops), self.trips, strict=True):
            word = (numbers[x.root] * 4 + KINDS.index(x.kind)) * 1_000_003 + trips
            value = np.where(trips > 1, (value ^ word.astype(np.uint64)) * prime, value)
        value = (value ^ (2 * self.ahead + self.past).astype(np.uint64)) * prime
        bits = self.peeled_bits.astype(np.uint64)
        value = np.where(bits > 0, (value ^ bits) * prime, value)
        if not self.form.vector:
            return value
        lanes = np.where(self.trips[-1] > 1, self.sizes.lanes, 1).astype(np.uint64)
        hashed: NDArray[np.uint64] = (value ^ lanes) * prime
        return hashed


def placed(space: RowsKnobs, partition: Partition, configs: Configs) -> list[Placed]:
    """All stages of configs of one sketch, nest by nest; members stand before their anchor."""
    found = list[Placed]()
    for nest in partition:
        anchors = _anchors(space, nest, configs)
        block = _gathered(anchors, len(configs), nest)
        outer = _outer(anchors, len(configs), nest)
        for stage in nest.members:
            found += _members(space, nest, stage, configs, block, outer)
        found += anchors
    return found


def _forms(space: RowsKnobs, stage: Stage, configs: Configs) -> list[tuple[Form, Ints]]:
    """The forms that a stage has in some configs, with these."""
    chosen, forms = space.values(configs, "form", stage.name), space.forms[stage.name]
    groups = [(f, np.flatnonzero(chosen == k)) for k, f in enumerate(forms)]
    return [(f, at) for f, at in groups if len(at)]


def _sizes(space: RowsKnobs, stage: Stage, form: Form, configs: Configs) -> Sizes:
    kinds = ("vectors", "rows", "unroll", "chunk", "peel")
    asked = Knobbed(*(space.values(configs, kind, stage.name) for kind in kinds))
    return sizes_of(
        stage, form, asked, lanes=space.lanes[stage.name], holds=space.holds[stage.name],
        registers=space.target.vector_registers,
    )  # fmt: skip


def _streams(
    space: RowsKnobs, stage: Stage, form: Form, loops: Sequence[Level], configs: Configs
) -> tuple[Ints, Ints]:
    """What is asked for ahead, and whether stores go past the caches; 0 without such knobs.

    A reduction that goes on from results in memory, or whose lanes are its points, does not.
    """
    ahead, past = (space.values(configs, kind, stage.name) for kind in ("ahead", "past"))
    if not stage.reduce or stage.scans:
        return ahead, past
    may = space.holds[stage.name] and not form.reduces
    for x in loops:
        if x.part == "chunk":
            past = past * (x.step >= stage.extents[x.root])
    return ahead, past * may


def _within_code(space: RowsKnobs, stage: Stage, form: Form, sizes: Sizes) -> Sizes:
    """Sizes without peels where these would write out too much."""
    written = len(stage.stores) * sizes.vectors * sizes.rows * sizes.unroll
    for a in stage.axes:
        steps = register(stage, form, sizes, a.name)
        bodies = 1 + ((a.extent % steps != 0) & (steps < a.extent) & (steps > 1))
        for step in np.unique(steps) if a.name in space.peeled[stage.name] else ():
            found = copies(pieces_of(space.compute, [stage], a.name, int(step)), int(step))
            bodies = np.where(steps == step, bodies + found - 1, bodies)
        written = written * bodies
    return replace(sizes, peel=np.where(written > CODE_STATEMENTS, 0, sizes.peel))


def _anchors(space: RowsKnobs, nest: Nest, configs: Configs) -> list[Placed]:
    stage, found = nest.anchor, []
    for form, at in _forms(space, stage, configs):
        own = configs[at]
        sizes = _within_code(space, stage, form, _sizes(space, stage, form, own))
        names = {a: f"{stage.name} {a}" for a in nest.rows}
        tiles = {a: space.values(own, "tiles", name) for a, name in names.items()}
        blocks = {a: space.values(own, "blocks", name) for a, name in names.items()}
        kept = blocks_within(nest, form, sizes, tiles, blocks)
        block = {a: register(stage, form, sizes, a) * kept.tiles[a] for a in nest.rows}
        loops = loops_of(nest, stage, form, sizes, kept)
        holds, borders = space.holds[stage.name], space.peeled[stage.name]
        streams = _streams(space, stage, form, loops, own)
        found.append(
            Placed(nest, stage, form, holds, at, sizes, (), loops, block, *streams, borders)
        )
    return found


def _members(
    space: RowsKnobs, nest: Nest, stage: Stage, configs: Configs,
    block: dict[str, Ints], outer: tuple[Level, ...],
) -> list[Placed]:  # fmt: skip
    own = {a: o for o, a in nest.row_axes(stage).items()}
    none, found = Blocks({}, {}), []
    for form, at in _forms(space, stage, configs):
        here = {a: size[at] for a, size in block.items()}
        sizes = inside_blocks(nest, stage, form, _sizes(space, stage, form, configs[at]), here)
        sizes = _within_code(space, stage, form, sizes)
        around = tuple(Level(own[x.root], x.step[at], x.kind, x.part) for x in outer)
        loops = loops_of(nest, stage, form, sizes, none)
        holds, borders = space.holds[stage.name], space.peeled[stage.name]
        streams = _streams(space, stage, form, loops, configs[at])
        found.append(
            Placed(nest, stage, form, holds, at, sizes, around, loops, here, *streams, borders)
        )
    return found


def _gathered(anchors: list[Placed], n: int, nest: Nest) -> dict[str, Ints]:
    """`(n,)` by row axis: elements of an iteration, of all configs."""
    block = {a: np.ones(n, dtype=np.int64) for a in nest.rows}
    for anchor in anchors:
        for a, size in anchor.block.items():
            block[a][anchor.at] = size
    return block


def _outer(anchors: list[Placed], n: int, nest: Nest) -> tuple[Level, ...]:
    """The loops of an anchor over tasks and iterations, of all configs."""
    steps = np.ones((2 * len(nest.rows), n), dtype=np.int64)
    for anchor in anchors:
        for k in range(len(steps)):
            steps[k, anchor.at] = anchor.loops[k].step
    like = anchors[0].loops[: len(steps)]
    return tuple(Level(x.root, s, x.kind, x.part) for x, s in zip(like, steps, strict=True))

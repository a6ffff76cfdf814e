"""The loops of a stage, outermost first, with steps as numbers or as arrays over configs.

A schedule's steps and the paths that features are computed from are both made of these, so that
they cannot differ.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.nest import LoopKind
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.forms import Form

CODE = 128
"""Statements of one body that are written out; ragged ends write a body up to eight times."""
Part = Literal["task", "block", "chunk", "tile", "reduce", "body"]


@dataclass(frozen=True)
class Sizes:
    """What the knobs of one stage come to, `(n,)` each, within what the stage allows."""

    lanes: Ints
    vectors: Ints
    """Vectors written out side by side; of lanes that reduce, that each result has."""
    rows: Ints
    unroll: Ints
    """Steps of the innermost reduction that are written out."""
    chunk: Ints
    """Bodies of the outermost reduction that are taken before the next tile; 0 for all."""
    peel: Ints
    """Whether loops over tiles are cut where loads come to lie inside of their tensors."""


@dataclass(frozen=True)
class Blocks:
    """By row axis of a nest, `(n,)` each."""

    tiles: Mapping[str, Ints]
    """Register tiles of the anchor in an iteration over rows."""
    blocks: Mapping[str, Ints]
    """Such iterations in a task."""


@dataclass(frozen=True)
class Level:
    """One loop."""

    root: str
    step: Ints
    kind: LoopKind
    part: Part


def register(stage: Stage, form: Form, sizes: Sizes, axis: str) -> Ints:
    """`(n,)`: elements of an axis that one body of a stage covers."""
    if axis == form.vector:
        return sizes.vectors * sizes.lanes
    if axis == form.row:
        return sizes.rows
    if stage.reduce and axis == innermost_reduce(stage, form):
        return sizes.unroll
    return np.ones_like(sizes.rows)


def innermost_reduce(stage: Stage, form: Form) -> str:
    """The reduction whose steps are written out; "" where there is none beside the lanes.

    It is the last one, or the first along which neighbours are read: those lie farthest apart, and
    steps that stand together read most of them once.
    """
    found = [a.name for a in stage.reduce if a.name != form.vector]
    near = [a for a in found if reads_along(stage, a)]
    return (near or found[-1:] or [""])[0]


def reads_along(stage: Stage, axis: str) -> bool:
    """Whether a stage reads a tensor in several places that differ along an axis alone."""
    key = "reads along", axis
    known = stage.derived.get(key)
    if not isinstance(known, bool):
        places = defaultdict[object, set[int]](set)
        for x in stage.loads:
            for d, e in enumerate(x.index):
                if axis in e.coefficients:
                    others = (*x.index[:d], e.terms, *x.index[d + 1 :])
                    places[x.tensor, others].add(e.constant)
        known = stage.derived[key] = any(len(found) > 1 for found in places.values())
    return known


def loops_of(
    nest: Nest, stage: Stage, form: Form, sizes: Sizes, blocks: Blocks
) -> tuple[Level, ...]:
    """All loops of a stage; those of a member begin inside the iteration over rows."""
    inside = [*_chunks(stage, form, sizes), *_tiles(stage, form, sizes), *_body(stage, form, sizes)]
    if stage is not nest.anchor:
        return tuple(inside)
    tasks, iterations = [], []
    for a in nest.rows:
        block = register(stage, form, sizes, a) * blocks.tiles[a]
        iterations.append(Level(a, block, "serial", "block"))
        tasks.append(Level(a, block * blocks.blocks[a], "parallel", "task"))
    return (*tasks, *iterations, *inside)


def _chunks(stage: Stage, form: Form, sizes: Sizes) -> list[Level]:
    """The outer loops over reductions, each of them whole but for the first."""
    found = []
    for k, r in enumerate(stage.reduce):
        step = register(stage, form, sizes, r.name)
        whole = -(-r.extent // step)
        count = np.where(sizes.chunk > 0, np.minimum(sizes.chunk, whole), whole) if not k else whole
        found.append(Level(r.name, count * step, "serial", "chunk"))
    return found


def _tiles(stage: Stage, form: Form, sizes: Sizes) -> list[Level]:
    """The loops over register tiles, then those over the reductions of one."""
    names = [a.name for a in stage.parallel]
    inner = (form.vector, form.row) if stores_along_rows(stage, form) else (form.row, form.vector)
    last = [a for a in inner if a in names]
    order = [a for a in names if a not in last] + last
    tiles = [Level(a, register(stage, form, sizes, a), "serial", "tile") for a in order]
    return tiles + [
        Level(r.name, register(stage, form, sizes, r.name), "serial", "reduce")
        for r in sorted(stage.reduce, key=lambda r: r.name == form.vector)
    ]


def stores_along_rows(stage: Stage, form: Form) -> bool:
    """Whether results lie together along the rows of register tiles, not along the lanes.

    Tiles behind one another along the rows fill lines of the same few results then.  Behind one
    another along the lanes each would store to results of its own, on as many pages.
    """
    if stage.combine is not None or not form.row:
        return False
    return all(s.index and s.index[-1].coefficients.get(form.row) == 1 for s in stage.stores)


def _body(stage: Stage, form: Form, sizes: Sizes) -> list[Level]:
    """What is written out, and the lanes."""
    one = np.ones_like(sizes.rows)
    found = []
    if inner := innermost_reduce(stage, form):
        found.append(Level(inner, one, "unroll", "body"))
    if form.row:
        found.append(Level(form.row, one, "unroll", "body"))
    if form.vector and not form.reduces:
        found.append(Level(form.vector, sizes.lanes, "unroll", "body"))
    if form.vector:
        found.append(Level(form.vector, one, "vectorize", "body"))
    return found


@dataclass(frozen=True)
class Knobbed:
    """What the knobs of one stage stand at, `(n,)` each."""

    vectors: Ints
    rows: Ints
    unroll: Ints
    chunk: Ints
    peel: Ints


def lanes_along(extent: int, lanes: int) -> int:
    """Lanes of a vector along an axis: a power of two, and no more than hold a short axis.

    A wider vector of a short axis would be masked, and cross lines that its elements do not reach.
    """
    return min(lanes, 1 << (extent - 1).bit_length())


def sizes_of(
    stage: Stage, form: Form, asked: Knobbed, *, lanes: int, registers: int, holds: bool
) -> Sizes:
    """Sizes within the registers and the code that a stage may take.

    `holds`: whether it reduces with its results in registers.
    """
    one = np.ones_like(asked.rows)
    extents, parts = stage.extents, len(stage.stores)
    lanes = lanes_along(extents[form.vector], lanes) if form.vector else 1
    wide = one * lanes
    across = -(-extents[form.vector] // lanes) if form.vector else 1
    vectors = np.minimum(asked.vectors, across) if form.vector else one
    rows = np.minimum(asked.rows, extents[form.row]) if form.row else one
    if holds:
        vectors = np.clip(vectors, 1, max(1, (registers - 2) // (parts + 1)))
        beside = one if form.reduces else vectors
        rows = np.clip(rows, 1, (registers - 1 - beside) // (vectors * parts))
    inner = innermost_reduce(stage, form)
    unroll = np.minimum(asked.unroll, extents[inner]) if inner else one
    most = max(1, CODE // parts)
    vectors = np.minimum(vectors, most)
    if form.reduces:
        vectors = np.where(vectors < across, power_of_two(vectors), vectors)
    rows = np.clip(rows, 1, most // vectors)
    unroll = np.clip(unroll, 1, most // (vectors * rows))
    chunk = asked.chunk if stage.reduce else one * 0
    return Sizes(wide, vectors, rows, unroll, chunk, asked.peel)


def power_of_two(most: Ints) -> Ints:
    """The largest power of two up to each number, of those that a body has vectors.

    The lanes of a reduction are one value of LLVM, which it carries around a loop in whole vectors
    where they are a power of two, and else one by one.
    """
    found = np.ones_like(most)
    for n in (2, 4, 8, 16):
        found = np.where(most >= n, n, found)
    return found


def inside_blocks(
    nest: Nest, stage: Stage, form: Form, sizes: Sizes, block: Mapping[str, Ints]
) -> Sizes:
    """Sizes of a member whose tiles divide the rows of an iteration; `block` is by anchor's axis.

    Tiles that began across two iterations would not be whole anywhere.  An iteration that has all
    rows has no other beside it.
    """
    own = nest.row_axes(stage)
    lanes, vectors, rows = sizes.lanes, sizes.vectors, sizes.rows
    if form.vector in own:
        size = block[own[form.vector]]
        lanes = np.gcd(lanes, size)
        vectors = np.gcd(vectors, size // lanes)
    if form.row in own:
        outer = own[form.row]
        whole = block[outer] >= nest.anchor.extents[outer]
        rows = np.where(whole, rows, np.gcd(rows, block[outer]))
    return replace(sizes, lanes=lanes, vectors=vectors, rows=rows)


def blocks_within(
    nest: Nest, form: Form, sizes: Sizes, tiles: Mapping[str, Ints], blocks: Mapping[str, Ints]
) -> Blocks:
    """Blocks no larger than the axes."""
    kept_tiles, kept_blocks = dict[str, Ints](), dict[str, Ints]()
    for a in nest.rows:
        extent = nest.anchor.extents[a]
        step = register(nest.anchor, form, sizes, a)
        kept_tiles[a] = np.minimum(tiles[a], -(-extent // step))
        kept_blocks[a] = np.minimum(blocks[a], -(-extent // (step * kept_tiles[a])))
    return Blocks(kept_tiles, kept_blocks)


def row_blocks(
    nest: Nest, form: Form, sizes: Sizes, blocks: Blocks
) -> dict[str, NDArray[np.int64]]:
    """`(n,)` by row axis: elements of an iteration over rows."""
    return {a: register(nest.anchor, form, sizes, a) * blocks.tiles[a] for a in nest.rows}

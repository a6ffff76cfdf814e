"""The loops of an attention's stages, with steps as arrays over configs.

    parallel b0 .. t.0            a task: some queries of a head that has keys of its own
      keys packed, values packed
      g0 .. t.1                   an iteration: a block of queries
        scores                    register tiles of queries x keys, over the depth
        maximum, exponentials,    rows of scores of the block, from one to the next in scratch
        their sum, ...
        values                    register tiles of queries x features, over the keys
        t.2: f                    the results

Scores of a block are in the caches of one core, and never in an array of all queries.  With lanes
along the depth, keys are read as they lie: a few queries are not worth a copy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.nest import LoopKind
from hlotune.schedules.patterns.attention import DEPTH, FEATURE, KEY, ROW
from hlotune.schedules.spaces.cpu_rows.bodies import Level, Part
from hlotune.schedules.spaces.cpu_rows.forms import Form

CODE = 96
"""Statements of one register tile that are written out; ragged ends write it up to four times."""
UNROLL = (1, 2, 4, 8)
KEYS_IN_LANES = Form(KEY, ROW, reduces=False)
DEPTH_IN_LANES = Form(DEPTH, ROW, reduces=True)
FEATURES_IN_LANES = Form(FEATURE, ROW, reduces=False)


@dataclass(frozen=True)
class Tile:
    """What one body of a stage covers, `(n,)` each, within registers and code."""

    rows: Ints
    vectors: Ints
    """Side by side; of lanes that reduce, those of each result."""
    unroll: Ints
    """Steps of the sum, or keys where lanes lie along the depth."""
    chunk: Ints
    """Bodies of the sum that all tiles take before the next; 0 for all."""


def scores_tile(
    asked: Tile, form: Form, extents: Mapping[str, int], lanes: int, registers: int
) -> Tile:
    """A register tile of the first product that fits."""
    vectors = np.minimum(asked.vectors, -(-extents[form.vector] // lanes))
    if not form.reduces:
        rows = np.minimum(asked.rows, extents[ROW])
        return _fitting(asked, rows, vectors, extents[DEPTH], registers)
    # each result has its vectors: as many rows and keys as there is room for
    vectors = np.minimum(vectors, 2)
    rows = np.clip(np.minimum(asked.rows, extents[ROW]), 1, (registers - 2) // vectors)
    keys = np.clip(asked.unroll, 1, (registers - 2) // (vectors * rows))
    return Tile(rows, vectors, _power(np.minimum(keys, extents[KEY])), asked.chunk * 0)


def values_tile(asked: Tile, extents: Mapping[str, int], lanes: int, registers: int) -> Tile:
    """A register tile of the second product that fits."""
    vectors = np.minimum(asked.vectors, -(-extents[FEATURE] // lanes))
    rows = np.minimum(asked.rows, extents[ROW])
    return _fitting(asked, rows, vectors, extents[KEY], registers)


def _fitting(asked: Tile, rows: Ints, vectors: Ints, steps: int, registers: int) -> Tile:
    vectors = np.clip(vectors, 1, (registers - 1) // 2)
    rows = np.clip(rows, 1, (registers - 1 - vectors) // vectors)
    unroll = np.clip(np.minimum(asked.unroll, steps), 1, np.maximum(1, CODE // (rows * vectors)))
    return Tile(rows, vectors, _power(unroll), asked.chunk)


def _power(most: Ints) -> Ints:
    """The largest value that steps are written out by, up to a number."""
    table = np.array(UNROLL)
    found: Ints = table[np.searchsorted(table, most, side="right") - 1]
    return found


def dividing(asked: Ints, block: Ints) -> Ints:
    """`(n,)`: the largest divisors of blocks that are no more than what is asked for."""
    found = np.ones_like(asked)
    for n in range(2, int(asked.max(initial=1)) + 1):
        found = np.where((block % n == 0) & (n <= asked), n, found)
    return found


def outer_levels(out: Stage, block: Ints, task: Ints) -> tuple[Level, ...]:
    """The loops of the last stage around the others; blocks and tasks count queries."""
    one = np.ones_like(block)
    heads = [a.name for a in out.parallel if a.name[0] == "b"]
    groups = [a.name for a in out.parallel if a.name[0] == "g"]
    return (
        *(Level(a, one, "parallel", "task") for a in heads),
        Level(ROW, task, "parallel", "task"),
        *(Level(a, one, "serial", "block") for a in groups),
        Level(ROW, block, "serial", "block"),
    )


def out_levels(vectors: Ints, lanes: int) -> tuple[Level, ...]:
    one = np.ones_like(vectors)
    return (
        Level(ROW, one, "serial", "tile"),
        Level(FEATURE, vectors * lanes, "serial", "tile"),
        *_vectors(FEATURE, lanes * one),
    )


def scores_levels(stage: Stage, tile: Tile, form: Form, lanes: int) -> tuple[Level, ...]:
    one = np.ones_like(tile.rows)
    rows = Level(ROW, tile.rows, "serial", "tile")
    if form.reduces:
        keys = Level(KEY, tile.unroll, "serial", "tile")
        return (
            *_points(stage, one), keys, rows,
            Level(DEPTH, tile.vectors * lanes, "serial", "reduce"),
            Level(KEY, one, "unroll", "body"), Level(ROW, one, "unroll", "body"),
            Level(DEPTH, one, "vectorize", "body"),
        )  # fmt: skip
    keys = Level(KEY, tile.vectors * lanes, "serial", "tile")
    return (
        *_points(stage, one), keys, rows,
        Level(DEPTH, tile.unroll, "serial", "reduce"),
        Level(DEPTH, one, "unroll", "body"), Level(ROW, one, "unroll", "body"),
        *_vectors(KEY, lanes * one),
    )  # fmt: skip


def values_levels(stage: Stage, tile: Tile, lanes: int) -> tuple[Level, ...]:
    one, extent = np.ones_like(tile.rows), stage.extents[KEY]
    whole = -(-extent // tile.unroll)
    chunk = np.where(tile.chunk > 0, np.minimum(tile.chunk, whole), whole) * tile.unroll
    return (
        Level(KEY, chunk, "serial", "chunk"),
        *_points(stage, one),
        Level(FEATURE, tile.vectors * lanes, "serial", "tile"),
        Level(ROW, tile.rows, "serial", "tile"),
        Level(KEY, tile.unroll, "serial", "reduce"),
        Level(KEY, one, "unroll", "body"), Level(ROW, one, "unroll", "body"),
        *_vectors(FEATURE, lanes * one),
    )  # fmt: skip


def between_levels(
    stage: Stage, form: Form, rows: Ints, vectors: Ints, lanes: int
) -> tuple[Level, ...]:
    """The loops of a stage between the products, with vectors along keys or, of one, along rows."""
    one = np.ones_like(rows)
    if not form.row:
        return (*_points(stage, one), Level(ROW, lanes * one, "serial", "tile"), _lanes(ROW, one))
    part: Part = "reduce" if form.reduces else "tile"
    found = [
        *_points(stage, one),
        Level(ROW, rows, "serial", "tile"),
        Level(KEY, vectors * lanes, "serial", part),
        Level(ROW, one, "unroll", "body"),
    ]
    if form.reduces:
        return (*found, _lanes(KEY, one))
    return (*found, *_vectors(KEY, lanes * one))


def between_form(stage: Stage) -> Form:
    keys = any(a.name == KEY for a in stage.axes)
    return Form(KEY, ROW, bool(stage.reduce)) if keys else Form(ROW, "", reduces=False)


def _points(stage: Stage, one: Ints) -> list[Level]:
    """The loops over heads and groups, of which an iteration has one each."""
    return [Level(a.name, one, "serial", "tile") for a in stage.parallel if a.name[0] in "bg"]


def _vectors(axis: str, lanes: Ints) -> tuple[Level, Level]:
    return Level(axis, lanes, "unroll", "body"), _lanes(axis, np.ones_like(lanes))


def _lanes(axis: str, one: Ints) -> Level:
    kind: LoopKind = "vectorize"
    return Level(axis, one, kind, "body")

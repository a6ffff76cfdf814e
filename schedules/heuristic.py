"""The first candidate of every space: a formula of extents and target.

The register tile is the one that wastes least: of the work of all its copies, the share that is useful, times what
the multiply-add units can do with it (a tile of few accumulators waits for its own results, one of few rows waits for
loads).  Everything else follows from it: whole reductions, borders by checks, rows of the outermost axis to tasks.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.populations import population, sizes
from hlotune.schedules.roles import Contraction
from hlotune.schedules.sketch import Sketch

if TYPE_CHECKING:
    from hlotune.schedules.cpu import CpuSpace

LATENCY_TIMES_UNITS = 8
"""Independent multiply-adds that keep the units busy: latency 4, two units."""
TASKS_PER_THREAD = 4
CACHED_BYTES = 64 << 10


def heuristic_config(space: "CpuSpace") -> NDArray[np.int32]:
    sketch = _sketch(space)
    config = np.zeros(1 + len(space.knobs.knobs), dtype=np.int32)
    config[0] = space.sketches.index(sketch)
    tile = _tile(space, sketch.vector)
    _set(space, config, "register", tile + 1)
    _set(space, config, "block", np.full(len(tile), 1))
    _set(space, config, "group", _groups(space, config))
    _set(space, config, "unroll", np.full(len(space.contraction.reduce), 1))
    return config


def _set(
    space: "CpuSpace", config: NDArray[np.int32], kind: str, values: NDArray[np.int64]
) -> None:
    """Puts the nearest value that each knob of a kind has."""
    for column, value in zip(space.knobs.columns(kind), values, strict=True):
        config[1 + column] = int(
            np.argmin(np.abs(np.array(space.knobs.knobs[column].values) - value))
        )


def _sketch(space: "CpuSpace") -> Sketch:
    """Vectors along what the result stores together; packs only for what vectors cannot read, and for constants."""
    c = space.contraction
    vectors = {s.vector for s in space.sketches}
    vector = max(vectors, key=lambda v: _vector_score(c, v, space.lanes))
    packs = []
    for x in c.operands:
        stride = abs(c.stride(x, vector))
        level = "call" if stride > 1 else "none"
        if stride and Sketch(vector, False, ()) and _can_load(space, x.tensor):
            level = "load"
        packs.append((x.tensor, level))
    return next(
        s
        for s in space.sketches
        if s.vector == vector and not s.chunked and dict(s.packs) == dict(packs)
    )


def _can_load(space: "CpuSpace", tensor: str) -> bool:
    return any(dict(s.packs).get(tensor) == "load" for s in space.sketches)


def _vector_score(c: Contraction, axis: str, lanes: int) -> tuple[float, bool, bool]:
    extent = c.core.extents[axis]
    full = extent / (-(-extent // lanes) * lanes)
    return (
        full if full < 0.75 else 1.0,
        c.out_stride(axis) == 1,
        any(c.stride(x, axis) == 1 for x in c.operands),
    )


def _tile(space: "CpuSpace", vector: str) -> NDArray[np.int64]:
    """Positions of the best register tile among those that fit."""
    tiles = space.tiles[vector].astype(np.int64)
    c = space.contraction
    extents = np.array([a.extent for a in c.parallel])
    column = [a.name for a in c.parallel].index(vector)
    width = (tiles + 1) * np.where(np.arange(len(extents)) == column, space.lanes, 1)
    useful = np.prod(extents / (-(-extents // width) * width), axis=1)
    across = tiles[:, column] + 1
    total = np.prod(tiles + 1, axis=1)
    rows = total // across
    busy = np.minimum(1, total / LATENCY_TIMES_UNITS)
    loads = np.maximum(total, rows * 0.75 + across) / total
    # a tile that spans rows of the last axes only keeps its loads near one another
    spread = 1 + 0.02 * ((tiles[:, :-1] > 0).sum(axis=1) if len(extents) > 2 else 0)
    score = useful * busy / loads / spread * (1 - 0.1 / total)
    return tiles[int(np.argmax(score))]


def _groups(space: "CpuSpace", config: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tasks are rows of the outermost axes that give each thread several; the axes inside stay whole."""
    p = population(space, config[None])
    tiles = sizes(space, p).trips
    counts = (tiles[0] * tiles[1] * tiles[2])[0]
    groups = counts.copy()
    wanted = space.target.threads * TASKS_PER_THREAD
    for k in range(len(counts)):
        if counts[k] > 1:
            groups[k] = max(1, counts[k] // wanted)
            wanted = -(-wanted // int(-(-counts[k] // groups[k])))
        if wanted <= 1:
            break
    return groups

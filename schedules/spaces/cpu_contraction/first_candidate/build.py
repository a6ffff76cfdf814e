"""The first candidate of every space: a formula of extents and target.

The register tile is the one that wastes least: of the work of all its copies, the share that is
useful, times what the multiply-add units can do with it (a tile of few accumulators waits for its
own results, one of few rows waits for loads).  Everything else follows from it: whole reductions,
taps on padding left out where they are a share of the work, the larger operand read once for all
tiles that use it, and as many equal tasks as there are threads.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise, permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.batch import Population, sizes
from hlotune.schedules.spaces.cpu_contraction.first_candidate.page_blocking import (
    lies_in_pages,
    page_by_page,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.panels_first import (
    reads_less_by_panels,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.reduction_chunks import (
    in_chunks,
    in_short_chunks,
    is_far,
    is_packed_far,
    lies_across,
    waits_for_far,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.reduction_loops import (
    left_out,
    lying_order,
    reads_lines,
    written_out,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.register_tile import (
    UNEVEN_WORTH,
    best_tile,
    starved,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import runs_alone
from hlotune.schedules.spaces.cpu_contraction.first_candidate.streamed_operands import (
    APART_BYTES,
    REPAYS_PACKING,
    streams,
    whole_rows,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.streams import (
    is_one_stream,
    side_by_side,
)
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.spaces.cpu_contraction.vector_axes import brings_together, cycles
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget

MOST_TASKS = 4096
LINES_APART_BYTES = 512
"""Between what one step reads and the next, from which on nothing fetches ahead."""
PACKED_SHARE = 0.6
"""Share of the second cache for what a task has packed."""


def heuristic_config(space: ContractionSpace) -> NDArray[np.int32]:
    """The first candidate; where it passes a limit, it gives up what it can do best without."""
    config = _wanted(space)
    for less in (_rows_not_peeled, _not_peeled, _not_unrolled, _packed_by_blocks, _not_packed):
        if space.legal(config[None])[0]:
            return config
        less(space, config)
    columns = 1 + np.array(space.knobs.columns("register"))
    while not space.legal(config[None])[0] and config[columns].any():
        config[columns[int(np.argmax(config[columns]))]] //= 2
        _set(space, config, "group", groups_of(space, config))
    return config


def _rows_not_peeled(space: ContractionSpace, config: NDArray[np.int32]) -> None:
    """Peels no axis of which a register tile has one row."""
    knobs, rows = space.knobs, space.tiling(config).register
    columns = knobs.columns("peel")
    peel = [int(config[1 + k]) * (rows[knobs.knobs[k].axis] > 1) for k in columns]
    _set(space, config, "peel", np.array(peel, dtype=np.int64))


def _not_peeled(space: ContractionSpace, config: NDArray[np.int32]) -> None:
    _set(space, config, "peel", np.zeros(len(space.knobs.columns("peel")), dtype=np.int64))


def _not_unrolled(space: ContractionSpace, config: NDArray[np.int32]) -> None:
    _set(space, config, "unroll", np.ones(len(space.contraction.reduce), dtype=np.int64))


def _packed_by_blocks(space: ContractionSpace, config: NDArray[np.int32]) -> None:
    """What does not fit into the scratch of a call is packed for one block at a time."""
    sketch = space.sketches[int(config[0])]
    packs = tuple((t, "block" if level == "call" else level) for t, level in sketch.packs)
    config[0] = space.sketches.index(replace(sketch, packs=packs))


def _not_packed(space: ContractionSpace, config: NDArray[np.int32]) -> None:
    """What is too much for the scratch of a task, too, is read where it lies."""
    sketch = space.sketches[int(config[0])]
    packs = tuple((t, "none" if n in ("block", "task") else n) for t, n in sketch.packs)
    config[0] = space.sketches.index(replace(sketch, packs=packs))
    _set(space, config, "group", groups_of(space, config))


def _wanted(space: ContractionSpace) -> NDArray[np.int32]:
    sketch = _sketch(space)
    config = np.zeros(1 + len(space.knobs.knobs), dtype=np.int32)
    config[0] = space.sketches.index(sketch)
    packed = [tensor for tensor, level in sketch.packs if level != "none"]
    tile = best_tile(space, sketch.vector, packed) + 1
    if streams(space, sketch, tile):
        return _streamed(space, config, sketch, tile)
    order = lying_order(space, sketch)
    unroll, clip = written_out(space, sketch.vector, tile, order, *left_out(space, sketch, tile))
    _set(space, config, "register", tile)
    _set(space, config, "block", np.ones(len(tile), dtype=np.int64))
    _set(space, config, "unroll", unroll)
    _set(space, config, "clip", clip)
    _set(space, config, "peel", _peeled(space, sketch, tile, unroll))
    _set_order(space, config, sketch)
    put_order(space, config, "reduce_order", order)
    _set(space, config, "group", groups_of(space, config))
    if lies_across(space, config):
        return in_short_chunks(space, config)
    if lies_in_pages(space, config):
        return page_by_page(space, config)
    if is_one_stream(space, config):
        found = side_by_side(space, config)
        _set(space, found, "group", groups_of(space, found))
        return found
    far = is_far(space, config) or is_packed_far(space, config)
    return in_chunks(space, config) if far else config


def _streamed(
    space: ContractionSpace, config: NDArray[np.int32], sketch: Sketch, tile: NDArray[np.int64]
) -> NDArray[np.int32]:
    chunked, wanted, orders = whole_rows(space, sketch, tile)
    config[0] = space.sketches.index(chunked)
    for kind, values in wanted.items():
        _set(space, config, kind, values)
    for kind, order in orders.items():
        put_order(space, config, kind, order)
    return config


def put_order(
    space: ContractionSpace, config: NDArray[np.int32], kind: str, wanted: list[int]
) -> None:
    """Puts an order into a config, where the space has it."""
    rows = np.flatnonzero((space.knobs.orders[kind] == wanted).all(axis=1))
    if len(rows):
        config[1 + space.knobs.columns(kind)[0]] = int(rows[0])


def _set(
    space: ContractionSpace, config: NDArray[np.int32], kind: str, values: NDArray[np.int64]
) -> None:
    space.knobs.put(config, kind, values)


def _sketch(space: ContractionSpace) -> Sketch:
    """Vectors along what lies together; packs for constants and for what vectors cannot read."""
    c = space.contraction
    vectors = dict.fromkeys(s.vector for s in space.sketches)
    target = space.target
    vector = min(vectors, key=lambda v: (cycles(c, space.lanes, v, target), c.out_stride(v)))
    packs = []
    for x in c.operands:
        stride = abs(c.stride(x, vector))
        apart = stride > 1 and brings_together(c, x, vector)
        level = "call" if apart or _repays_changing(c, x) else "none"
        if stride and _can_load(space, x.tensor):
            level = "load"
        elif stride == 1 and _repays_packing(c, x, target) and _waits(space, x, vector):
            level = "task"
        packs.append((x.tensor, level))
    return Sketch(vector, False, tuple(packs))


def _repays_packing(c: Contraction, x: Load, target: CpuTarget) -> bool:
    """Whether an operand is used so often, and lies so scattered, that it is copied first."""
    often = c.core.flops / c.compute.tensor(x.tensor).bytes
    column_bytes = prod(r.extent for r in c.reduce) * max(target.vector_bytes, LINE_BYTES)
    many = column_bytes > target.l1_bytes
    return many and _long_step_bytes(c, x) >= LINES_APART_BYTES and often >= REPAYS_PACKING


def _long_step_bytes(c: Contraction, x: Load) -> int:
    """Bytes between what consecutive steps load, along the nearest of the long reductions."""
    longest = max(r.extent for r in c.reduce)
    return c.step_bytes(x, [r for r in c.reduce if 2 * r.extent >= longest])


def _waits(space: ContractionSpace, x: Load, vector: str) -> bool:
    """Whether multiply-adds wait for an operand that is read where it lies.

    Rows in pages of their own are waited for as if from the last cache, by the tile that would be
    best of packed rows; lines of one page from the second cache, by the tile that is best of them.
    """
    c = space.contraction
    ahead = [y.tensor for y in c.operands if _can_load(space, y.tensor)]
    if _long_step_bytes(c, x) >= APART_BYTES:
        tile = best_tile(space, vector, [*ahead, x.tensor]) + 1
        return waits_for_far(c, space.target, vector, tile) and _fits(space, vector, tile)
    tile = best_tile(space, vector, ahead) + 1
    return bool(starved(space, vector, ahead, tile[None])[0] > 1)


def _fits(space: ContractionSpace, vector: str, tile: NDArray[np.int64]) -> bool:
    """Whether the second cache holds a panel of what a task packs, or there are no lines along
    which a chunk of it could be read where it lies."""
    c, v = space.contraction, [a.name for a in space.contraction.parallel].index(vector)
    panel_bytes = prod(r.extent for r in c.reduce) * int(tile[v]) * space.target.vector_bytes
    return panel_bytes <= space.target.l2_bytes or not reads_lines(c)


def _repays_changing(c: Contraction, x: Load) -> bool:
    """Whether what is not used as it lies, but in groups or widened, is used often."""
    tensor = c.compute.tensor(x.tensor)
    return x.dtype != tensor.dtype and c.core.flops / tensor.bytes >= REPAYS_PACKING


def _can_load(space: ContractionSpace, tensor: str) -> bool:
    return any(dict(s.packs).get(tensor) == "load" for s in space.sketches)


def _peeled(
    space: ContractionSpace, sketch: Sketch, tile: NDArray[np.int64], unroll: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Axes whose borders are written apart: those with rows of which each would be checked, and
    those of one row with a window that is written out, of which each tap would be.

    Each check leaves a row, or a tap, a pointer of its own; of so many few stay in registers, and
    code that chooses them again inside pushes sums out as well.
    """
    c, packed = space.contraction, {tensor for tensor, level in sketch.packs if level != "none"}
    rows = {a.name: (int(n), a.extent) for a, n in zip(c.parallel, tile, strict=True)}
    taps = {r.name for r, n in zip(c.reduce, unroll, strict=True) if 1 < r.extent <= n}
    found = []
    for axis in (space.knobs.knobs[k].axis for k in space.knobs.columns("peel")):
        height, whole = rows[axis]
        is_read = any(x.tensor not in packed for x in c.windows[axis])
        checked = height > 1 or any(taps & set(e.coefficients) for e in _along(c, axis))
        found.append(int(is_read and checked and height < whole and axis != sketch.vector))
    return np.array(found, dtype=np.int64)


def _along(c: Contraction, axis: str) -> list[Affine]:
    """What loads that leave their tensors along an axis have of it in their indices."""
    return [e for x in c.windows[axis] for e in x.index if axis in e.coefficients]


def _set_order(space: ContractionSpace, config: NDArray[np.int32], sketch: Sketch) -> None:
    """What is read along the vectorized axis, when it would not stay in cache, is read once.

    The axis then goes outermost, and the next panel is asked for while the present one is used.
    Where it stays in the second cache, the axis goes where less is read from there.
    """
    c, names = space.contraction, [a.name for a in space.contraction.parallel]
    along = (x for x in c.operands if c.stride(x, sketch.vector) and _is_read_again(c, x))
    size = max((c.compute.tensor(x.tensor).bytes for x in along), default=0)
    large, v = size > space.target.l2_bytes // 2, names.index(sketch.vector)
    outermost = large or reads_less_by_panels(space, config, sketch)
    rest = [k for k in range(len(names)) if k != v]
    for kind in ("group_order", "tile_order"):
        put_order(space, config, kind, [v, *rest] if outermost else [*rest, v])
    _set(space, config, "prefetch", np.array([int(large)]))


def _is_read_again(c: Contraction, x: Load) -> bool:
    """Whether there is a parallel axis along which an operand does not vary."""
    return any(a.name not in x.axes for a in c.parallel)


def groups_of(space: ContractionSpace, config: NDArray[np.int32]) -> NDArray[np.int64]:
    """Register tiles of a task along each axis: equal shares for the threads.

    They are cut along the first axes, along the vectors last: rows stay with their threads.
    """
    tiles = sizes(space, Population(space, config[None])).trips
    counts: NDArray[np.int64] = (tiles[0] * tiles[1] * tiles[2])[0]
    best, least = counts, np.inf
    if runs_alone(space.contraction, space.target):
        return best
    if any(level == "task" for _, level in space.sketches[int(config[0])].packs):
        return _panels(space, config, counts)
    vector, work = space.sketches[int(config[0])].vector, _work(space, config, counts)
    rows_first = sorted(enumerate(space.contraction.parallel), key=lambda a: a[1].name == vector)
    axes = [k for k, _ in rows_first if counts[k] > 1]
    for cut in [(k,) for k in axes] + list(permutations(axes, 2)):
        groups = counts.copy()
        groups[list(cut)] = 1 if len(cut) > 1 else -(-counts[cut[0]] // space.target.threads)
        if np.prod(-(-counts // groups)) > MOST_TASKS:
            continue
        uneven = _busiest(work, groups, space.target.threads)
        if uneven * UNEVEN_WORTH < least:
            best, least = groups, uneven
    return best


def _panels(
    space: ContractionSpace, config: NDArray[np.int32], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Tasks that pack what they read: cut along the vectors, to panels that the cache holds."""
    c, sketch = space.contraction, space.sketches[int(config[0])]
    v = [a.name for a in c.parallel].index(sketch.vector)
    tensor = next(tensor for tensor, level in sketch.packs if level == "task")
    panel_bytes = c.compute.tensor(tensor).bytes / counts[v]
    fit = max(1, int(PACKED_SHARE * space.target.l2_bytes / panel_bytes))
    rounds = -(-counts[v] // (fit * space.target.threads))
    groups = counts.copy()
    groups[v] = -(-counts[v] // (rounds * space.target.threads))
    return groups


def _work(
    space: ContractionSpace, config: NDArray[np.int32], counts: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    """Along each axis the work of its tiles, as of one beside another: phases that are clipped have
    their own numbers of taps."""
    c, tiling = space.contraction, space.tiling(config)
    clipped = [c.phases[r] for r in c.phases if r in tiling.clip and tiling.unroll[r] == 1]
    taps = {a: n for phases in clipped for a, n in phases.items()}
    return [
        np.array(taps.get(a.name, ()), np.float64) if len(taps.get(a.name, ())) == n else np.ones(n)
        for a, n in zip(c.parallel, counts, strict=True)
    ]


def _busiest(work: Sequence[NDArray[np.float64]], groups: NDArray[np.int64], threads: int) -> float:
    """What the busiest thread has to do, as a multiple of an equal share."""
    parts = [np.add.reduceat(w, np.arange(0, len(w), n)) for w, n in zip(work, groups, strict=True)]
    tasks = reduce(np.multiply.outer, parts).reshape(-1)
    bounds = -(-len(tasks) * np.arange(threads + 1) // threads)
    shares = [tasks[a:b].sum() for a, b in pairwise(bounds)]
    return float(max(shares) * threads / tasks.sum())

"""What a cost model knows of a loop nest: a row of numbers a config, for whole populations.

Features belong to the nest: they are computed from its path (loops, trips, what is held and packed
where) and from the index maps, never from knobs.  Counts are logarithms to base 2.  `NAMES` says
what stands in which column; the traffic between caches follows the reuse model of AutoTVM's curve
features (arXiv:1805.08166), with whole cache lines.
"""

from dataclasses import dataclass
from math import gcd
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.expr import Load
from hlotune.schedules.paths import CALL_LEVEL, KINDS, NOT_PACKED, Ints, Path, sizes_inside
from hlotune.schedules.roles import Contraction
from hlotune.schedules.target import LINE_BYTES, Target

FEATURES_VERSION = 1
"""Of what the columns mean; a model that was trained on others is not loaded."""

OPERANDS = 3
PAGE_BYTES = 4096
Floats = NDArray[np.float64]
Element = TypeVar("Element", bound=np.generic)

NEST_NAMES = (
    "flops", "results", "reduction", "element_bytes", "vector_bytes", "threads",
    "rows", "vectors", "register_share", "unrolled_reduction", "statements",
    "useful_work", "useful_lanes", "tasks", "task_balance", "flops_a_task",
    "flops_a_tile", "tile_reduction", "innermost_trips", "loop_steps_a_flop",
    "footprint_tile_l1", "footprint_tile_l2", "footprint_task_l2", "footprint_task_l3",
    "footprint_step_l1", "traffic_l1", "traffic_l2", "traffic_l3", "partial_sums",
    "clipped", "peeled", "checks_a_flop", "prefetch", "handed_over",
    "outermost_task_axis", "innermost_tile_axis", "loads_a_multiply_add", "store_stride",
)  # fmt: skip
OPERAND_NAMES = (
    "lane_stride", "row_stride_alias", "run_bytes", "pack_place", "pack_bytes_a_flop",
    "l1_bytes_a_flop", "l2_bytes_a_flop", "reuse_in_tile", "bytes", "rows_read",
)  # fmt: skip
NAMES = NEST_NAMES + tuple(f"operand{k}_{n}" for k in range(OPERANDS) for n in OPERAND_NAMES)


@dataclass(frozen=True)
class _View:
    """A path with what most features need of it."""

    c: Contraction
    target: Target
    lanes: int
    path: Path
    extents: Ints
    sizes: Ints
    runs: Floats
    """`(n, slots + 1)`: how often the body inside each slot is executed; column 0 is once."""
    flops: float

    @property
    def rows(self) -> Ints:
        return np.arange(len(self.path.axis))

    def at(self, values: NDArray[Element], slot: Ints) -> NDArray[Element]:
        """What stands in one slot of each config."""
        found: NDArray[Element] = values[self.rows, slot]
        return found


def features_of(c: Contraction, target: Target, lanes: int, path: Path) -> NDArray[np.float32]:
    """`(n, len(NAMES))` float32, one row a config."""
    extents = np.array([a.extent for a in (*c.parallel, *c.reduce)], dtype=np.int64)
    trips = np.concatenate([np.ones((len(path.axis), 1)), path.trips], axis=1)
    v = _View(
        c, target, lanes, path, extents, sizes_inside(path, extents), np.cumprod(trips, axis=1),
        2.0 * float(np.prod(extents.astype(np.float64))),
    )  # fmt: skip
    lines = [_bytes(v, x, k) for k, x in enumerate(c.operands[:OPERANDS])]
    footprint = sum(lines, np.zeros_like(v.runs)) + _held_bytes(v)
    columns = _shape(v) + _tile(v) + _tasks(v) + _loops(v) + _memory(v, footprint) + _orders(v)
    for k in range(len(lines)):
        columns += _operand(v, k, lines[k], footprint)
    result = np.zeros((len(path.axis), len(NAMES)), dtype=np.float32)
    for k, column in enumerate(columns):
        result[:, k] = column
    return result


def _log(x: Floats | float) -> Floats:
    return np.log2(np.maximum(np.asarray(x, dtype=np.float64), 1e-9))


def _shape(v: _View) -> list[Floats]:
    """What all configs have in common, as arrays of no dimension."""
    extents, parallel = v.extents.astype(np.float64), len(v.c.parallel)
    counts = (v.flops, float(extents[:parallel].prod()), float(extents[parallel:].prod()))
    plain = (BYTES[v.c.dtype], v.target.vector_bytes, v.target.threads)
    return [_log(x) for x in counts] + [np.array(x, dtype=np.float64) for x in plain]


def _tile_parts(v: _View) -> tuple[Floats, Floats, Floats, Floats]:
    """Rows and vectors of the register tile, unrolled steps of the reduction, lanes in use."""
    kind, axis, parallel = v.path.kind, v.path.axis, len(v.c.parallel)
    unrolled = kind == KINDS.index("unroll")
    reduce = axis >= parallel
    lane = axis[:, -1:]
    is_vector = kind[:, -1:] == KINDS.index("vectorize")
    across = np.where(unrolled & (axis == lane) & is_vector, v.path.trips, 1).prod(axis=1)
    rows = np.where(unrolled & ~reduce, v.path.trips, 1).prod(axis=1) / across
    steps = np.where(unrolled & reduce, v.path.trips, 1).prod(axis=1)
    lanes = np.where(is_vector[:, 0], v.path.trips[:, -1], 1)
    return rows, across.astype(np.float64), steps.astype(np.float64), lanes.astype(np.float64)


def _tile(v: _View) -> list[Floats]:
    rows, across, steps, _ = _tile_parts(v)
    used = (rows * across + across + 1) / v.target.vector_registers
    return [rows, across, used, _log(steps), _log(rows * across * steps)]


def _tasks(v: _View) -> list[Floats]:
    parallel = v.path.kind == KINDS.index("parallel")
    tasks = np.where(parallel, v.path.trips, 1).prod(axis=1).astype(np.float64)
    threads = v.target.threads
    balance = tasks / (np.ceil(tasks / threads) * threads)
    walked = np.ones((len(v.path.axis), len(v.extents)))
    for k in range(v.path.axis.shape[1]):
        walked[v.rows, v.path.axis[:, k]] *= v.path.trips[:, k]
    useful = np.prod(v.extents / np.maximum(walked, v.extents), axis=1)
    wide = v.extents[v.path.axis[:, -1]]
    lanes = wide / (np.ceil(wide / v.lanes) * v.lanes)
    return [useful, lanes, _log(tasks), balance, _log(v.flops / tasks)]


def _loops(v: _View) -> list[Floats]:
    held = v.at(v.runs, v.path.held_from)
    rows, across, _, _ = _tile_parts(v)
    inner = v.runs[:, -1] / held / (rows * across * v.path.trips[:, -1])
    serial = v.path.kind == KINDS.index("serial")
    last = np.ones(len(v.path.axis))
    for k in range(v.path.axis.shape[1]):
        last = np.where(serial[:, k] & (v.path.trips[:, k] > 1), v.path.trips[:, k], last)
    entered = np.where(serial, v.runs[:, 1:], 0).max(axis=1)
    return [_log(v.flops / held), _log(inner), _log(last), _log(entered / v.flops)]


def _held_bytes(v: _View) -> Floats:
    """Bytes of results touched inside each slot."""
    sizes = v.sizes[:, :, : len(v.c.parallel)].astype(np.float64)
    touched: Floats = sizes.prod(axis=2) * BYTES[v.c.dtype]
    return touched


def _bytes(v: _View, x: Load, k: int) -> Floats:
    """`(n, slots + 1)`: bytes of cache lines of an operand touched inside each slot."""
    size = BYTES[x.dtype]
    numbers = {a.name: n for n, a in enumerate((*v.c.parallel, *v.c.reduce))}
    shape = v.c.compute.tensor(x.tensor).shape
    elements = np.ones(v.runs.shape)
    run = np.ones(v.runs.shape)
    contiguous = np.ones(v.runs.shape, dtype=bool)
    for d in range(len(x.index) - 1, -1, -1):
        span = np.ones(v.runs.shape)
        for a, w in x.index[d].terms:
            span = span + abs(w) * (v.sizes[:, :, numbers[a]] - 1)
        span = np.minimum(span / x.divisor(d), shape[d])
        run = np.where(contiguous, run * span, run)
        contiguous &= span >= shape[d]
        elements = elements * span
    lines = elements / run * np.ceil(run * size / LINE_BYTES)
    packed = v.path.packs[:, k : k + 1] != NOT_PACKED
    return np.where(packed, np.ceil(elements * size / LINE_BYTES), lines) * LINE_BYTES


def _traffic(v: _View, footprint: Floats, cache_bytes: float, moved: Floats) -> Floats:
    """Bytes of `moved` that enter a cache.

    They are what the outermost body that fits into it touches, each time that it runs.
    """
    fits = footprint <= 0.75 * cache_bytes
    fits[:, -1] = True
    level = fits.argmax(axis=1)
    return v.at(v.runs, level) * v.at(moved, level)


def _memory(v: _View, footprint: Floats) -> list[Floats]:
    t, path = v.target, v.path
    tasks = (path.kind == KINDS.index("parallel")).sum(axis=1)
    held = v.at(footprint, path.held_from)
    task = v.at(footprint, tasks)
    step = footprint[:, -3]
    caches = (t.l1_bytes, t.l2_bytes, t.l3_bytes)
    traffic = [_traffic(v, footprint, size, footprint) for size in caches]
    chunks = v.at(v.runs, path.held_from) / np.maximum(1, np.prod(_out_tiles(v), axis=1))
    borders = np.bitwise_count(path.borders).astype(np.float64)
    return [
        _log(held / t.l1_bytes), _log(held / t.l2_bytes),
        _log(task / t.l2_bytes), _log(task / t.l3_bytes), _log(step / t.l1_bytes),
        *(_log(x / v.flops) for x in traffic), _log(chunks),
        borders[:, 0], borders[:, 1], _checks(v), path.prefetch.astype(np.float64),
        path.handed_over.astype(np.float64),
    ]  # fmt: skip


def _out_tiles(v: _View) -> Floats:
    """Register tiles along each parallel axis."""
    parallel = len(v.c.parallel)
    tiles: Floats = np.ceil(v.extents[:parallel] / v.at(v.sizes, v.path.held_from)[:, :parallel])
    return tiles


def _checks(v: _View) -> Floats:
    """How often borders are checked, a flop: windows of operands that are not packed."""
    names = {a.name: n for n, a in enumerate((*v.c.parallel, *v.c.reduce))}
    total = np.zeros(len(v.path.axis))
    rows, _, _, _ = _tile_parts(v)
    for k, x in enumerate(v.c.operands[:OPERANDS]):
        windows = {names[a] for e in x.index if len(e.terms) > 1 for a, _ in e.terms}
        if not windows:
            continue
        inside = np.isin(v.path.axis, list(windows)) & (v.path.trips > 1)
        inside &= v.path.kind == KINDS.index("serial")
        last = v.path.axis.shape[1] - 1 - inside[:, ::-1].argmax(axis=1)
        last = np.where(inside.any(axis=1), last + 1, 0)
        total += np.where(v.path.packs[:, k] == NOT_PACKED, v.at(v.runs, last) * rows, 0)
    return _log(total / v.flops)


def _orders(v: _View) -> list[Floats]:
    several = v.path.trips > 1
    first = v.at(v.path.axis, several.argmax(axis=1))
    before = np.where(np.arange(several.shape[1]) < v.path.held_from[:, None], several, False)
    innermost = several.shape[1] - 1 - before[:, ::-1].argmax(axis=1)
    tile = np.where(before.any(axis=1), v.at(v.path.axis, innermost), -1)
    rows, across, _, _ = _tile_parts(v)
    strides = np.array([v.c.out_stride(a.name) for a in v.c.parallel])
    lane = v.path.axis[:, -1]
    store = np.where(lane < len(strides), strides[np.minimum(lane, len(strides) - 1)], 0)
    loads = (rows + across) / (rows * across)
    numbers = (first, tile, loads, np.minimum(store, 2))
    return [x.astype(np.float64) for x in numbers]


def _operand(v: _View, k: int, lines: Floats, footprint: Floats) -> list[Floats]:
    x, place = v.c.operands[k], v.path.packs[:, k]
    axes = [a.name for a in (*v.c.parallel, *v.c.reduce)]
    strides = np.array([abs(v.c.stride(x, a)) for a in axes])
    lane, packed = strides[v.path.axis[:, -1]], place != NOT_PACKED
    tile = v.at(lines, v.path.held_from)
    inside = v.runs[:, -1] / v.at(v.runs, v.path.held_from)
    rows, _, _, _ = _tile_parts(v)
    caches = (v.target.l1_bytes, v.target.l2_bytes)
    l1, l2 = (_traffic(v, footprint, size, lines) for size in caches)
    columns = [
        np.where(packed & (lane > 0), 1, np.minimum(lane, 2)),
        np.where(packed, 0, _log(_alias(v, x, strides))),
        _log(tile), np.maximum(place, -3), _log(_copied(v, place, lines) / v.flops + 1e-6),
        _log(l1 / v.flops), _log(l2 / v.flops), _log(inside * BYTES[x.dtype] / tile),
        _log(lines[:, 0]), np.where(lane > 0, 1, rows),
    ]  # fmt: skip
    return [c.astype(np.float64) for c in columns]


def _copied(v: _View, place: Ints, lines: Floats) -> Floats:
    """Bytes that packing an operand copies; at load time they cost nothing."""
    inside = v.at(v.runs, np.maximum(place, 0) + 1)
    executed = np.where(place >= 0, inside, (place == CALL_LEVEL).astype(np.float64))
    copied = executed * v.at(lines, np.maximum(place, CALL_LEVEL) + 1)
    return np.where(place != NOT_PACKED, copied, 0)


def _alias(v: _View, x: Load, strides: Ints) -> Floats:
    """Largest power of two, up to a page, that divides the bytes between rows; 1 without rows."""
    row = _row_stride(v, strides) * BYTES[x.dtype]
    return np.array([gcd(int(r), PAGE_BYTES) if r else 1 for r in row], dtype=np.float64)


def _row_stride(v: _View, strides: Ints) -> Ints:
    """Elements between the rows of the register tile in which an operand is read.

    The rows are those of the innermost unrolled axis along which it varies.
    """
    result = np.zeros(len(v.path.axis), dtype=np.int64)
    parallel, lane = len(v.c.parallel), v.path.axis[:, -1]
    for k in range(v.path.axis.shape[1]):
        axis = v.path.axis[:, k]
        here = (v.path.kind[:, k] == KINDS.index("unroll")) & (axis < parallel) & (axis != lane)
        here &= v.path.trips[:, k] > 1
        result = np.where(here & (strides[axis] > 0), strides[axis], result)
    return result

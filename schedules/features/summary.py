"""What a cost model knows of a loop nest: a row of numbers a config, for whole populations.

Features belong to the nest: they are computed from its loops that iterate (`loop_levels.py`) and
from the index maps, never from knobs, so that equal nests have equal rows.  Most are logarithms to
base 2.  Costs are relative to the kernel's multiply-adds at peak (`cost_terms.py`), sizes to the
caches, so that one model serves all kernels and machines.  docs/features.md says what each column
means.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.features.cost_terms import Costs, Work, plain_work
from hlotune.schedules.features.footprint import Floats
from hlotune.schedules.features.loop_levels import OPERANDS, Levels, deepest, levels_of, strides_of
from hlotune.schedules.features.loop_paths import CALL_LEVEL, LOAD_LEVEL, Path
from hlotune.schedules.features.tails import evenness, open_borders, padding
from hlotune.schedules.ir.flops import flops_of
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.steps.limit_formulas import tile_registers
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget
from hlotune.schedules.targets.machine import PAGE_BYTES

FEATURES_VERSION = 5
"""The version of the columns here and in `loop_trees.py`: a model fits the one it learned from."""

KERNEL_NAMES = (
    "flops", "results", "reduction", "intensity", "real_work", "epilogue_flops",
    "element_bytes", "is_float", "lanes", "registers", "threads", "l1_bytes", "l2_bytes",
    "l3_bytes",
)  # fmt: skip
NEST_NAMES = (
    "work", "rows", "vectors", "register_share", "lanes_used", "ragged", "unrolled", "code",
    "tasks", "balance", "task_flops", "tile_flops", "tile_reduction", "innermost_trips",
    "partial_sums", "handed_over", "clipped", "peeled", "prefetch", "reduces_lanes",
    "even", "open_rows", "open_lanes", "open_checks",
    "body_l1", "step_l1", "tile_l1", "tile_l2", "task_l2", "task_l3", "store_run", "store_stride",
    "cost_multiply", "cost_latency", "cost_loads", "cost_results", "cost_loops", "cost_exits",
    "cost_checks", "cost_stages", "cost_l1", "cost_l2", "cost_l3", "cost_packing", "cost_waking",
    "cost_core", "cost_total", "cost_overlapped",
)  # fmt: skip
OPERAND_NAMES = (
    "bytes", "element_bytes", "lane_kind", "pack_runs", "packed_at_load", "cost_packing",
    "cost_loads", "enters_l1", "enters_l2", "enters_l3", "tile_reuse", "reuse_distance", "tile_run",
    "tile_pages", "crowding", "step_stride", "tile_stride", "task_share", "padding",
)  # fmt: skip
STAGES_NAMES = ("stages", "passes", "joined", "main_share")
"""Columns that describe a nest whose stages are described one by one."""
STAGE_NAMES = (
    "share", "cost_core", "cost_l1", "cost_l2", "cost_l3", "rows", "vectors", "lanes_used",
    "unrolled", "innermost_trips", "tile_l1", "reduces_lanes", "joined",
)  # fmt: skip
"""Columns that each of these stages has, except for the main one."""
OTHER_STAGES = 3
"""Stages beside the main one that have columns."""
NAMES = (
    *KERNEL_NAMES, *NEST_NAMES,
    *(f"operand{k}_{name}" for k in range(OPERANDS) for name in OPERAND_NAMES),
    *STAGES_NAMES,
    *(f"stage{k}_{name}" for k in range(1, 1 + OTHER_STAGES) for name in STAGE_NAMES),
)  # fmt: skip
COLUMN = {name: k for k, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class Logged:
    """A column whose logarithm is meant: those of all columns are taken at once."""

    of: NDArray[Any] | np.floating[Any] | float


Columns = dict[str, NDArray[Any] | Logged | float]


def features_of(
    c: Contraction, target: CpuTarget, lanes: int, path: Path, work: Work | None = None
) -> NDArray[np.float32]:
    """`(n, len(NAMES))` float32, one row a config; `work` where an algorithm does other sums."""
    v = levels_of(c, target, lanes, path, 1)
    return features_of_levels(v, Costs(v, work or plain_work(c)))


def features_of_levels(v: Levels, costs: Costs) -> NDArray[np.float32]:
    """`(n, len(NAMES))` float32; columns of stages described one by one are zero."""
    result = np.zeros((len(NAMES), v.count), dtype=np.float32)
    behind = len(KERNEL_NAMES) + len(NEST_NAMES)
    result[: len(KERNEL_NAMES)] = _kernel(v.c, v.target, v.lanes)
    logged = _put(_nest(v, costs), NEST_NAMES, result, len(KERNEL_NAMES), behind)
    if count := len(v.is_plain):  # one product of two numbers has none
        end = behind + count * len(OPERAND_NAMES)
        logged += _put(_operands(v, costs), OPERAND_NAMES, result, behind, end)
    result[logged] = _log(result[logged])
    return np.ascontiguousarray(result.T)


def _put(columns: Columns, names: tuple[str, ...], into: Floats, start: int, end: int) -> list[int]:
    """Columns where their names stand, in a range that has all names as often as a column rows.

    Returns which of them are to be logarithms yet.
    """
    logged = list[int]()
    for k, name in enumerate(names):
        column = columns[name]
        if isinstance(column, Logged):
            into[start + k : end : len(names)] = column.of
            logged += range(start + k, end, len(names))
        else:
            into[start + k : end : len(names)] = column
    return logged


def _log(x: Floats | np.floating[Any] | float) -> Floats:
    """Logarithms of sizes and counts; zero costs stand far below all others."""
    return np.log2(np.maximum(np.asarray(x, dtype=np.float32), np.float32(2.0**-16)))


@lru_cache(maxsize=64)
def _kernel(c: Contraction, t: CpuTarget, lanes: int) -> Floats:
    """`(len(KERNEL_NAMES), 1)`: what all configs of a kernel on a target have in common."""
    extents = np.array([a.extent for a in (*c.parallel, *c.reduce)], dtype=np.float32)
    flops, parallel = np.float32(2 * np.prod(extents.astype(np.float64))), len(c.parallel)
    moved = sum(x.bytes for x in c.compute.tensors if x.is_outer)
    arithmetic = sum(s.flops for s in c.compute.stages)
    results = float(extents[:parallel].prod())
    columns = {
        "flops": float(_log(flops)), "results": float(_log(results)),
        "reduction": float(_log(float(extents[parallel:].prod()))),
        "intensity": float(_log(flops / moved)),
        "real_work": flops_of(c.compute) / arithmetic if arithmetic else 1.0,
        "epilogue_flops": c.out.flops / max(1, c.out.points),
        "element_bytes": BYTES[c.dtype], "is_float": is_float(c.dtype), "lanes": lanes,
        "registers": t.vector_registers, "threads": t.threads,
        "l1_bytes": float(_log(t.l1_bytes)), "l2_bytes": float(_log(t.l2_bytes)),
        "l3_bytes": float(_log(t.l3_bytes)),
    }  # fmt: skip
    return np.array([[columns[name]] for name in KERNEL_NAMES], dtype=np.float32)


def _nest(v: Levels, costs: Costs) -> Columns:
    """What is said of a nest as a whole."""
    parts = {f"cost_{name}": Logged(x) for name, x in costs.parts.items()}
    return _tile(v, costs) | _shape(v, costs) | _edges(v, costs) | _memory(v) | parts


def _tile(v: Levels, costs: Costs) -> Columns:
    rows, vectors = v.tile
    code = v.at(v.code, v.inner)
    return {
        "work": Logged(v.flops / costs.work.flops), "rows": rows, "vectors": vectors,
        "register_share": tile_registers(rows, vectors) / v.target.vector_registers,
        "lanes_used": v.lanes_used, "ragged": Logged(rows * vectors / costs.accumulators),
        "unrolled": Logged(code / (rows * vectors)), "code": Logged(code),
    }  # fmt: skip


def _shape(v: Levels, costs: Costs) -> Columns:
    """How the work is divided."""
    runs, sums = v.at(v.runs, v.held), v.at(v.sums, v.held)
    tiles = v.at(v.pieces[: len(v.c.parallel)], v.held).prod(axis=0)
    trips = np.where(v.inner > 0, costs.repeats / v.at(v.runs, v.around), np.float32(1))
    return {
        "tasks": Logged(costs.tasks), "balance": costs.balance,
        "task_flops": Logged(v.flops / costs.tasks), "tile_flops": Logged(v.flops / runs),
        "tile_reduction": Logged(v.flops / runs / (2 * sums)),
        "innermost_trips": Logged(trips), "partial_sums": Logged(runs / tiles),
        "handed_over": v.path.handed_over,
        "clipped": np.bitwise_count(v.path.borders[:, 0]),
        "peeled": np.bitwise_count(v.path.borders[:, 1]), "prefetch": v.path.prefetch,
        "reduces_lanes": v.reduces_lanes,
    }  # fmt: skip


def _edges(v: Levels, costs: Costs) -> Columns:
    rows, lanes, checks = open_borders(v)
    return {
        "even": evenness(v), "open_rows": rows, "open_lanes": lanes,
        "open_checks": Logged(costs.of(checks * np.float32(costs.rates.check_cycles))),
    }  # fmt: skip


def _memory(v: Levels) -> Columns:
    """Bytes touched at once, against the caches, and how results lie."""
    t = v.target
    tile, task = v.at(v.footprint, v.held), v.at(v.footprint, v.task)
    beside = 1 + len(v.c.reduce)  # lanes along a reduction, and none at all
    strides = np.array([*(v.c.out_stride(a.name) for a in v.c.parallel), *[0] * beside])
    return {
        "body_l1": Logged(v.at(v.footprint, v.inner) / t.l1_bytes),
        "step_l1": Logged(v.at(v.footprint, v.around) / t.l1_bytes),
        "tile_l1": Logged(tile / t.l1_bytes), "tile_l2": Logged(tile / t.l2_bytes),
        "task_l2": Logged(task / t.l2_bytes), "task_l3": Logged(task / t.l3_bytes),
        "store_run": Logged(v.at(v.result.run, v.task)),
        "store_stride": np.minimum(strides[v.lane_axis], 2),
    }  # fmt: skip


def _operands(v: Levels, costs: Costs) -> Columns:
    """`(operands, n)` each."""
    count = len(v.is_plain)
    packs, touched, is_plain = v.packs[:count], v.touched.bytes[:-1], v.is_plain
    held, run = v.at(touched, v.held), v.at(v.touched.run[:-1], v.held)
    pages = held / np.maximum(run, LINE_BYTES) * np.maximum(run / PAGE_BYTES, 1)
    again = v.flops / 2 / v.at(v.runs, v.held) / v.at(v.touched.elements[:-1], v.held)
    packed = np.where(packs >= CALL_LEVEL, v.at(v.runs, np.maximum(packs, 0)), np.float32(0))
    l1, l2, l3 = costs.moved[:, :count] / v.flops
    return {
        "bytes": Logged(touched[:, 0]), "element_bytes": _element_bytes(v.c),
        "lane_kind": v.lane_kinds,
        "pack_runs": np.where(is_plain, np.float32(-2), _log(np.maximum(packed, 0.5))),
        "packed_at_load": packs == LOAD_LEVEL,
        "cost_packing": Logged(costs.packing), "cost_loads": Logged(costs.loads),
        "enters_l1": Logged(l1), "enters_l2": Logged(l2), "enters_l3": Logged(l3),
        "tile_reuse": Logged(again), "reuse_distance": _distance(v),
        "tile_run": Logged(run), "tile_pages": Logged(pages), "crowding": _crowding(v),
        "step_stride": _apart(v, v.inner), "tile_stride": _apart(v, v.held),
        "task_share": Logged(v.at(touched, v.task) / touched[:, 0]), "padding": Logged(padding(v)),
    }  # fmt: skip


def _distance(v: Levels) -> Logged:
    """Bytes touched until a tile's part of an operand is used again, against the first cache.

    By the innermost loop around the registers that comes back to it; where none does, the whole.
    """
    touched = v.touched.bytes[:-1]
    again = v.runs[1:] * touched[:, 1:] > np.float32(1.01) * v.runs[:-1] * touched[:, :-1]
    reused = deepest(again & (np.arange(1, len(v.runs)).reshape(-1, 1) <= v.held))
    return Logged(v.at(v.footprint, reused) / v.target.l1_bytes)


def _crowding(v: Levels) -> Floats:
    """Share of the ways of a set of the first cache that the rows of a tile fall into."""
    shares = _shares(v.c, v.target)
    rows = v.at(v.steps[: shares.shape[1]], v.inner) * shares
    numbers = np.arange(shares.shape[1]).reshape(-1, 1)
    most = np.where(v.lane_axis != numbers, rows, np.float32(0)).max(axis=1, initial=0)
    return np.where(v.is_plain, np.minimum(most, 4), np.float32(0))


@lru_cache(maxsize=64)
def _shares(c: Contraction, target: CpuTarget) -> Floats:
    """`(operands, parallel axes, 1)`: share of a set's ways that one step along an axis takes."""
    shares = [
        [
            gcd(stride * c.element_bytes(x), PAGE_BYTES) / target.l1_bytes if stride else 0.0
            for stride in row[: len(c.parallel)]
        ]
        for x, row in zip(c.operands[:OPERANDS], strides_of(c).tolist(), strict=True)
    ]
    return np.array(shares, dtype=np.float32).reshape(len(shares), len(c.parallel), 1)


def _element_bytes(c: Contraction) -> NDArray[np.int64]:
    """`(operands, 1)`."""
    sizes = [[c.element_bytes(x)] for x in c.operands[:OPERANDS]]
    return np.array(sizes, dtype=np.int64)


def _apart(v: Levels, level: NDArray[np.int64]) -> Floats:
    """Bytes between what neighbouring iterations of the loop around a level begin at."""
    around = np.maximum(level - 1, 0)
    axis = np.where(level > 0, v.at(v.axis, around), -1)
    sizes = _element_bytes(v.c)
    apart = (strides_of(v.c) * sizes).astype(np.float32)[:, axis]
    apart *= v.at_axis(v.steps, axis, level)
    together = v.is_plain | (apart == 0)
    between: Floats = np.log2(1 + np.where(together, apart, v.at(v.touched.bytes[:-1], level)))
    return between

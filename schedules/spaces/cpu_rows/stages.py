"""The stages of populations of a rows' space one by one: their loops, and what these cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.cost_terms import Costs, Work
from hlotune.schedules.features.footprint import Floats
from hlotune.schedules.features.loop_levels import OPERANDS, Levels, levels_of
from hlotune.schedules.features.loop_paths import KINDS, NOT_PACKED, Ints, Path
from hlotune.schedules.features.summary import OTHER_STAGES
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.patterns.row_limit import operations_of
from hlotune.schedules.spaces.cpu_rows.decoded import Placed, placed
from hlotune.schedules.spaces.cpu_rows.forms import is_transposed
from hlotune.schedules.spaces.cpu_rows.view import Rows, Staged
from hlotune.schedules.spaces.space import Configs

APART_CYCLES, STORED_APART_CYCLES, TURNED_CYCLES = 16.0, 24.0, 6.0
"""The cycles that a vector costs whose elements are loaded one by one, or are stored one by one, or
that is transposed in registers together with its neighbours.
"""
COSTLY = 1 / 16
"""Share of the main stage's work from which on another stage is described too."""


@dataclass(frozen=True)
class Described:
    """One stage of some configs."""

    placed: Placed
    rows: Ints
    """The rows of the population that these configs are."""
    costs: Costs

    @property
    def levels(self) -> Levels:
        return self.costs.v


def described(space: Staged, configs: Configs, depth: int = 1) -> list[Described]:
    """All stages of all configs, with room for at least `depth` loops."""
    found = [(p, rows, _levels(space, p, depth)) for p, rows in space.groups(configs)]
    enters = _entering(space, found, len(configs))
    return [
        Described(p, rows, Costs(v, replace(stage_work(space, p), enters=share)))
        for (p, rows, v), share in zip(found, enters, strict=True)
    ]


def groups(space: Rows, configs: Configs) -> list[tuple[Placed, Ints]]:
    """All stages of all configs, each with the rows of the configs that it belongs to; members of
    a nest stand in its order, before their anchor."""
    found = []
    for k, partition in enumerate(space.sketches):
        rows = np.flatnonzero(configs[:, 0] == k)
        if len(rows):
            found += [(p, rows[p.at]) for p in placed(space, partition, configs[rows])]
    return found


def costly(compute: Compute) -> tuple[Stage, ...]:
    """The stages that features describe, the one with the most work first; of equals the last."""
    order = sorted(reversed(compute.stages), key=_work, reverse=True)
    least = COSTLY * _work(order[0])
    return tuple(s for s in order[: 1 + OTHER_STAGES] if _work(s) >= least)


def _work(stage: Stage) -> float:
    return stage.points * (1 + operations_of(stage))


def stage_work(space: Staged, p: Placed) -> Work:
    """One operation a point counts as the unit; what a point takes beyond it stands beside, as do
    accesses whose elements lie apart along the lanes.
    """
    vectors = p.trips[-1] > 1 if p.form.vector else np.zeros(len(p.at), np.bool_)
    cycles = apart_cycles(space.compute, p)
    apart = np.where(vectors, space.target.rates.multiply_adds * cycles, 0.0)
    beside = max(0.0, 2 * operations_of(p.stage) - 2) + apart
    return Work(peak_work(p.stage), beside * p.stage.points)


def apart_cycles(compute: Compute, p: Placed) -> float:
    """Cycles of one vector for its accesses that are made element by element, or turned."""
    stage, axis = p.stage, p.form.vector
    loads = sum(abs(stride(x.index, compute.tensor(x.tensor).strides, axis)) > 1
                for x in stage.loads)  # fmt: skip
    stores = (
        0
        if p.form.reduces
        else sum(
            abs(stride(x.index, compute.tensor(x.tensor).strides, axis)) > 1 for x in stage.stores
        )
    )
    if is_transposed(compute, stage, p.form):
        return TURNED_CYCLES * (loads + stores)
    return APART_CYCLES * loads + STORED_APART_CYCLES * stores


def peak_work(stage: Stage) -> float:
    """What costs of a stage are relative to."""
    return 2.0 * max(1, stage.points)


@lru_cache(maxsize=256)
def stage_view(compute: Compute, stage: Stage) -> Contraction:
    """One stage as the features' view of a kernel: it reduces, or it does not, and it stores."""
    return Contraction(Compute(compute.tensors, (stage,)), stage, stage)


def _levels(space: Staged, p: Placed, depth: int) -> Levels:
    view = stage_view(space.compute, p.stage)
    return levels_of(view, space.target, space.lanes[p.stage.name], path_of_stage(p), depth)


def path_of_stage(p: Placed) -> Path:
    levels, n = (*p.outer, *p.loops), len(p.at)
    numbers = {a.name: k for k, a in enumerate(p.stage.axes)}
    ones, none = np.ones(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    operands = len(stage_operands(p))
    held = len(levels)
    if p.holds:
        parts = [x.part for x in levels]
        last = "tile" if "tile" in parts else "chunk"
        held = max(k for k, part in enumerate(parts) if part == last) + 1
    return Path(
        axis=np.repeat([[numbers[x.root] for x in levels]], n, axis=0).reshape(n, -1),
        trips=np.stack(p.trips, axis=1) if levels else np.ones((n, 0), dtype=np.int64),
        kind=np.repeat([[KINDS.index(x.kind) for x in levels]], n, axis=0).reshape(n, -1),
        held_from=ones * held,
        split_from=ones * len(p.outer),
        packs=np.full((n, operands), NOT_PACKED, dtype=np.int64),
        panels=np.ones((n, operands), dtype=np.int64),
        borders=np.stack([none, p.peeled_bits], axis=1),
        handed_over=none,
        prefetch=np.where(p.ahead > 0, 2, 0),
        asked_along=none - 1,
        spacing=none,
        beyond=none,
    )


def stage_operands(p: Placed) -> tuple[object, ...]:
    tensors = [x.tensor for x in p.stage.loads]
    return tuple(x for x in p.stage.loads if x.index and tensors.count(x.tensor) == 1)


Found = Sequence[tuple[Placed, Ints, Levels]]


def _entering(space: Staged, found: Found, n: int) -> list[Floats]:
    """`Work.enters` of each: what stages of one iteration over rows hand to each other stays in
    every cache that holds all that the iteration touches.

    What stages of other nests hand over comes from the last cache where that holds the kernel.
    """
    caches = np.array(space.target.caches_bytes, np.float32) * space.target.rates.cache_share
    kept = sum(t.bytes for t in space.compute.tensors) <= caches[-1]
    fits = {key: sum(sizes.values()) <= caches[:, None]
            for key, sizes in _touched(found, n).items()}  # fmt: skip
    before: dict[int, dict[str, tuple[str, ...]]] = {}
    """By nest and stage: its buffers."""
    result = []
    for p, rows, v in found:
        known = before.setdefault(id(p.nest), {})
        earlier = {t for name, of in known.items() if name != p.stage.name for t in of}
        enters = np.ones((len(caches), len(buffers_of(v)), v.count), np.float32)
        for k, tensor in enumerate(buffers_of(v)):
            own = tensor in p.stage.stored and p.stage is not p.nest.anchor
            if own or tensor in earlier - p.stage.stored:
                enters[:, k] = ~fits[id(p.nest)][:, rows]
            if kept and space.compute.tensor(tensor).role == "temporary":
                enters[-1, k] = 0
        result.append(enters)
        known[p.stage.name] = buffers_of(v)
    return result


def _touched(found: Found, n: int) -> dict[int, dict[str, NDArray[np.float32]]]:
    """By nest and tensor: bytes that one iteration over rows touches, `(n,)`; 0 of other nests."""
    result: dict[int, dict[str, NDArray[np.float32]]] = {}
    for p, rows, v in found:
        level = (v.path.trips[:, : 2 * len(p.nest.rows)] > 1).sum(axis=1)
        sizes = result.setdefault(id(p.nest), {})
        for tensor, size in zip(buffers_of(v), v.at(v.touched.bytes, level), strict=True):
            most = sizes.setdefault(tensor, np.zeros(n, np.float32))
            most[rows] = np.maximum(most[rows], size)
    return result


def buffers_of(v: Levels) -> tuple[str, ...]:
    """The tensors whose buffers features describe, the result last."""
    return (*(x.tensor for x in v.c.operands[:OPERANDS]), v.c.out.stores[0].tensor)

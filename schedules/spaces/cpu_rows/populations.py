"""Features of populations of a rows' space: those of each stage, put together.

A nest of several stages has the columns of the stage that does most, but for costs: these are the
sums over all stages, in units of the time that the whole kernel takes at best.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.cost_terms import Work
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import KINDS, NOT_PACKED, Path
from hlotune.schedules.features.loop_trees import ABSENT, NODE_NAMES, Nodes, nodes_of
from hlotune.schedules.features.summary import NAMES, features_of
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_rows.decoded import Placed, placed
from hlotune.schedules.spaces.cpu_rows.view import Rows
from hlotune.schedules.spaces.space import Configs

COST_COLUMNS = [k for k, name in enumerate(NAMES) if name.startswith("cost_")]


@lru_cache(maxsize=256)
def stage_view(compute: Compute, stage: Stage) -> Contraction:
    """One stage as the features' view of a kernel: it reduces, or it does not, and it stores."""
    return Contraction(Compute(compute.tensors, (stage,)), stage, stage)


def stage_work(stage: Stage) -> Work:
    """One operation a point counts as the unit; what a point takes beyond it stands beside."""
    return Work(2.0 * max(1, stage.points), float(max(0, stage.flops - 2 * stage.points)))


def groups(space: Rows, configs: Configs) -> list[tuple[Placed, NDArray[np.int64]]]:
    """All stages of all configs, each with the rows of the configs that it belongs to."""
    found = []
    for k, partition in enumerate(space.sketches):
        rows = np.flatnonzero(configs[:, 0] == k)
        if len(rows):
            found += [(p, rows[p.at]) for p in placed(space, partition, configs[rows])]
    return found


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
        prefetch=none,
        asked_along=none - 1,
        spacing=none,
        beyond=none,
    )


def stage_operands(p: Placed) -> tuple[object, ...]:
    tensors = [x.tensor for x in p.stage.loads]
    return tuple(x for x in p.stage.loads if x.index and tensors.count(x.tensor) == 1)


def features_of_rows(space: Rows, configs: Configs) -> NDArray[np.float32]:
    """`(n, len(NAMES))`."""
    result = np.zeros((len(configs), len(NAMES)), dtype=np.float32)
    costs = np.zeros((len(configs), len(COST_COLUMNS)), dtype=np.float64)
    main = main_stage(space.compute)
    total = sum(peak_work(s) for s in space.compute.stages)
    for p, rows in groups(space, configs):
        view = stage_view(space.compute, p.stage)
        lanes = space.lanes[p.stage.name]
        own = features_of(
            view,
            space.target,
            lanes,
            path_of_stage(p),
            stage_work(p.stage),
        )
        costs[rows] += np.exp2(own[:, COST_COLUMNS].astype(np.float64)) * (
            peak_work(p.stage) / total
        )
        if p.stage is main:
            result[rows] = own
    result[:, COST_COLUMNS] = np.log2(np.maximum(costs, 2.0**-16))
    return result


def peak_work(stage: Stage) -> float:
    """What costs of a stage are relative to."""
    return 2.0 * max(1, stage.points)


def main_stage(compute: Compute) -> Stage:
    """The stage with the most operations; of equals the last."""
    return max(reversed(compute.stages), key=lambda s: s.flops + s.points)


def nodes_of_rows(space: Rows, configs: Configs) -> Nodes:
    """The trees of the main stage."""
    main = main_stage(space.compute)
    view = stage_view(space.compute, main)
    slots = 3 * len(main.axes) + 6
    found = []
    for p, rows in groups(space, configs):
        if p.stage is main:
            path = path_of_stage(p)
            levels = levels_of(view, space.target, space.lanes[main.name], path, slots)
            found.append((rows, nodes_of(levels, stage_work(main))))
    room = max((t.values.shape[1] for _, t in found), default=1)
    values = np.zeros((len(configs), room, len(NODE_NAMES)), dtype=np.float32)
    parent = np.full((len(configs), room), ABSENT, dtype=np.int16)
    for rows, t in found:
        values[rows, : t.values.shape[1]] = t.values
        parent[rows, : t.parent.shape[1]] = t.parent
    return Nodes(values, parent)

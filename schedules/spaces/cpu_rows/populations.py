"""Features of populations of a rows' space: those of the stages that cost, put together.

A row has the columns of the stage that does most, then some of each of the next few; a tree has the
trees of all of them below one root.  Costs are sums over all stages, in units of the time that the
whole kernel takes at best.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_trees import (
    ABSENT,
    NODE_NAMES,
    ROOT_COSTS,
    ROOT_PARENT,
    Nodes,
    nodes_of_levels,
)
from hlotune.schedules.features.loop_trees import COLUMN as NODE_COLUMN
from hlotune.schedules.features.summary import (
    COLUMN,
    NAMES,
    STAGE_NAMES,
    features_of_levels,
)
from hlotune.schedules.spaces.cpu_rows.stages import Described, costly, described, peak_work
from hlotune.schedules.spaces.cpu_rows.view import Staged
from hlotune.schedules.spaces.space import Configs

COST_COLUMNS = [k for k, name in enumerate(NAMES) if name.startswith("cost_")]
MAIN_COLUMNS = COLUMN["stages"]
"""The number of columns that describe the main stage alone."""
LEAST = 2.0**-16
LEAVES_AND_LANES = 10
"""Nodes of a stage beside three loops an axis: its root, five leaves, and four loops of a body."""
FROM_ROW = ("rows", "vectors", "lanes_used", "unrolled", "innermost_trips", "tile_l1",
            "reduces_lanes")  # fmt: skip
"""Columns of a stage that are those of its own row."""


def features_of_rows(space: Staged, configs: Configs) -> NDArray[np.float32]:
    """`(n, len(NAMES))`."""
    order = costly(space.compute)
    whole = sum(peak_work(s) for s in space.compute.stages)
    result = np.zeros((len(configs), len(NAMES)), dtype=np.float32)
    costs = np.zeros((len(configs), len(COST_COLUMNS)), dtype=np.float64)
    for d in described(space, configs):
        own = features_of_levels(d.levels, d.costs)
        linear = np.exp2(own[:, COST_COLUMNS].astype(np.float64)) * (
            peak_work(d.placed.stage) / whole
        )
        costs[d.rows] += linear
        if d.placed.stage is order[0]:
            result[d.rows, :MAIN_COLUMNS] = own[:, :MAIN_COLUMNS]
            _put(result, d, "", {"main_share": linear[:, _cost("total")]})
        elif d.placed.stage in order:
            _put_stage(result, d, f"stage{order.index(d.placed.stage)}_", own, linear)
    result[:, COST_COLUMNS] = np.log2(np.maximum(costs, LEAST))
    _put_shares(result, costs[:, _cost("total")], len(order))
    passes = np.array([len(partition) for partition in space.sketches])
    result[:, COLUMN["stages"]] = len(space.compute.stages)
    result[:, COLUMN["passes"]] = passes[configs[:, 0]]
    return result


def _cost(name: str) -> int:
    """Where a cost stands among the costs."""
    return COST_COLUMNS.index(COLUMN[f"cost_{name}"])


def _put(
    into: NDArray[np.float32], d: Described, prefix: str, columns: dict[str, NDArray[np.float64]]
) -> None:
    """Columns of one stage by name, and whether it is computed inside the loops of another."""
    for name, values in columns.items():
        into[d.rows, COLUMN[prefix + name]] = values
    into[d.rows, COLUMN[f"{prefix}joined"]] = d.placed.stage is not d.placed.nest.anchor


def _put_stage(
    into: NDArray[np.float32], d: Described, prefix: str, own: NDArray[np.float32],
    linear: NDArray[np.float64],
) -> None:  # fmt: skip
    columns = {name: own[:, COLUMN[name]].astype(np.float64) for name in FROM_ROW}
    for name in (x for x in STAGE_NAMES if x.startswith("cost_")):
        columns[name] = np.log2(np.maximum(linear[:, _cost(name.removeprefix("cost_"))], LEAST))
    _put(into, d, prefix, {**columns, "share": linear[:, _cost("total")]})


def _put_shares(into: NDArray[np.float32], total: NDArray[np.float64], stages: int) -> None:
    """Costs of stages, which stand there yet, as shares of the whole."""
    for name in ("main_share", *(f"stage{k}_share" for k in range(1, stages))):
        share = into[:, COLUMN[name]] / total
        into[:, COLUMN[name]] = np.log2(np.maximum(share, LEAST))


def nodes_of_rows(space: Staged, configs: Configs) -> Nodes:
    """One tree a config: the trees of its stages below a root of the whole kernel.

    A kernel with one stage that costs has the tree of that stage.
    """
    order = costly(space.compute)
    room = [3 * len(s.axes) + LEAVES_AND_LANES for s in order]
    starts = np.cumsum([len(order) > 1, *room])
    values = np.zeros((len(configs), starts[-1], len(NODE_NAMES)), dtype=np.float32)
    parent = np.full((len(configs), starts[-1]), ABSENT, dtype=np.int16)
    costs = np.zeros((len(configs), len(ROOT_COSTS)), dtype=np.float64)
    whole = sum(peak_work(s) for s in space.compute.stages)
    for d in described(space, configs):
        parts = np.stack([d.costs.parts[name] for name in ROOT_COSTS], axis=1)
        costs[d.rows] += parts * (peak_work(d.placed.stage) / whole)
        if d.placed.stage not in order:
            continue
        k, tree = order.index(d.placed.stage), nodes_of_levels(d.levels, d.costs)
        start, slots = starts[k], tree.parent.shape[1]
        values[d.rows, start : start + slots] = tree.values
        below = np.where(tree.parent >= 0, tree.parent + start, tree.parent)
        parent[d.rows, start : start + slots] = below
        if k == 0:
            values[d.rows, 0] = tree.values[:, 0]
    parent[:, 0] = ROOT_PARENT
    if len(order) > 1:
        parent[:, starts[:-1]] = 0
    columns = [NODE_COLUMN[f"cost_{name}"] for name in ROOT_COSTS]
    values[:, 0, columns] = np.log2(np.maximum(costs, LEAST))
    return Nodes(values, parent)

"""A TreeGRU over loop trees: child-sum, leaves first, as in AutoTVM (arXiv:1805.08166, 4.1).

Each node's state comes from its own features and from the sum of its children's states; the state
of the root is decoded to a score.  A hidden state of 128 as there; its embedding of the node's type
is part of the linear map of the features, which hold the type as zeros and ones.

Trees of any shape are computed together, one level of depth after the other.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs, as_trees
from hlotune.costmodel.neural import Module, Neural, Scale
from hlotune.costmodel.training_budget import Effort
from hlotune.schedules.features.loop_trees import ABSENT, ROOT_PARENT, Nodes

HIDDEN = 128


def tree_gru(effort: Effort = "batch") -> Neural:
    """Reads loop trees."""
    return Neural("treegru", "nodes", TreeGru, effort)


class TreeGru(Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.scale = Scale(columns)
        self.own = torch.nn.Linear(columns, 3 * HIDDEN)
        self.of_children = torch.nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.decode = torch.nn.Sequential(
            torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Sigmoid(), torch.nn.Linear(HIDDEN, 1)
        )

    def prepare(self, inputs: Inputs) -> None:
        trees = as_trees(inputs)
        self.scale.prepare(trees.values[trees.parent != ABSENT])

    def score(self, inputs: Inputs) -> torch.Tensor:
        scores: torch.Tensor = self.decode(self.roots(levels_of(as_trees(inputs))))
        return scores[:, 0]

    def roots(self, levels: "list[Level]") -> torch.Tensor:
        """`(n, HIDDEN)`: the sum of the states of each tree's roots."""
        below: torch.Tensor | None = None
        for level in reversed(levels):
            state = self._state(self.own(self.scale(level.values)), below)
            below = torch.zeros(level.parents, HIDDEN)
            below = below.index_add(0, torch.from_numpy(level.parent), state)
        assert below is not None
        return below

    def _state(self, own: torch.Tensor, below: torch.Tensor | None) -> torch.Tensor:
        """A GRU's: `below` is the sum of the children's states, None on the deepest level."""
        if below is None:
            keep, _, new = own.chunk(3, dim=1)
            return (1 - torch.sigmoid(keep)) * torch.tanh(new)
        keep, reset, new = own.chunk(3, dim=1)
        old_keep, old_reset, old_new = self.of_children(below).chunk(3, dim=1)
        keep = torch.sigmoid(keep + old_keep)
        new = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
        return new + keep * (below - new)


@dataclass(frozen=True)
class Level:
    """All nodes of one depth, of all trees."""

    values: NDArray[np.float32]
    """`(m, F)`."""
    parent: NDArray[np.int64]
    """`(m,)`: row of the parent on the level above; above the roots each tree has one row."""
    parents: int
    """Rows of the level above."""


def levels_of(trees: Nodes) -> list[Level]:
    """The nodes of all trees by depth, the roots first."""
    depth = depths(trees.parent)
    rows = np.arange(len(depth))[:, None] * np.ones_like(depth)
    above = np.zeros(depth.shape, np.int64)
    """Row of each node on its level."""
    levels = []
    parents = len(depth)
    for d in range(int(depth.max(initial=0)) + 1):
        here = depth == d
        count = int(here.sum())
        up = trees.parent[here]
        tree = rows[here]
        parent = tree if d == 0 else above[tree, up]
        levels.append(Level(trees.values[here], parent, parents))
        above[here] = np.arange(count)
        parents = count
    return levels


def depths(parent: NDArray[np.int16]) -> NDArray[np.int64]:
    """`(n, slots)`: 0 for roots, -1 where there is no node; parents stand before their children."""
    depth = np.full(parent.shape, -1, np.int64)
    rows = np.arange(len(parent))
    for slot in range(parent.shape[1]):
        up = parent[:, slot]
        below = depth[rows, np.maximum(up, 0)] + 1
        depth[:, slot] = np.where(up == ROOT_PARENT, 0, np.where(up == ABSENT, -1, below))
    return depth

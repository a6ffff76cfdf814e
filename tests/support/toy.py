"""A search space with times by a closed formula: tests searchers without hardware."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs, Reads, as_summaries
from hlotune.schedules.features.loop_trees import NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Split


class ToySpace:
    """A grid of integer knobs behind a sketch column.

    The time is least at one hidden point, grows with the weighted distance from it, and has ripples
    that make local minima.  Configs whose first two knobs add up to `forbidden` are not legal.
    """

    sketches = 1

    pattern: Pattern = "contraction"

    def __init__(self, extents: tuple[int, ...], seed: int = 0, forbidden: int = -1) -> None:
        rng = np.random.default_rng([seed, 0x70F])  # not the numbers that searchers draw
        self.seed = seed
        self.extents = np.array(extents, np.int32)
        self.forbidden = forbidden
        self.optimum = rng.integers(0, self.extents).astype(np.int32)
        if self.optimum[:2].sum() == forbidden:
            self.optimum[0] = (self.optimum[0] + 1) % extents[0]
        self.weights = rng.uniform(0.3, 1.0, len(extents))

    @property
    def best(self) -> NDArray[np.int32]:
        """The config at the hidden point."""
        return np.array([0, *self.optimum], np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.extents.astype(float)))

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        rows = self._drawn(n, rng)
        while not (legal := self.legal(rows)).all():
            rows[~legal] = self._drawn(int((~legal).sum()), rng)
        return rows

    def _drawn(self, n: int, rng: np.random.Generator) -> Configs:
        knobs = rng.integers(0, self.extents, (n, len(self.extents)), dtype=np.int32)
        return np.concatenate([np.zeros((n, 1), np.int32), knobs], axis=1)

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        moved = configs.copy()
        column = rng.integers(0, len(self.extents), len(configs))
        rows = np.arange(len(configs))
        moved[rows, column + 1] = rng.integers(0, self.extents[column])
        return np.where(self.legal(moved)[:, None], moved, configs)

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        inside = within(configs, np.array([self.sketches, *self.extents], np.int32))
        return np.asarray(inside & (configs[:, 1:3].sum(axis=1) != self.forbidden))

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        return Schedule("direct", (Split("out", "i0", tuple(int(x) + 1 for x in config[1:])),))

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        if not schedule.steps or not isinstance(step := schedule.steps[0], Split):
            return None
        if len(step.factors) != len(self.extents):
            return None
        return np.array([0, *(factor - 1 for factor in step.factors)], np.int32)

    def features(self, configs: Configs) -> NDArray[np.float32]:
        """Knobs, in columns that are no costs."""
        rows = np.zeros((len(configs), len(NAMES)), np.float32)
        rows[:, : len(self.extents)] = configs[:, 1:]
        return rows

    def nodes(self, configs: Configs) -> Nodes:
        """A root with a leaf a knob."""
        n, knobs = len(configs), len(self.extents)
        values = np.zeros((n, 1 + knobs, len(NODE_NAMES)), np.float32)
        values[:, 1:, 0] = configs[:, 1:]
        values[:, 1:, 1] = np.arange(knobs)
        parent = np.zeros((n, 1 + knobs), np.int16)
        parent[:, 0] = ROOT_PARENT
        return Nodes(values, parent)

    def heuristic(self) -> NDArray[np.int32]:
        return np.zeros(len(self.extents) + 1, np.int32)

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def times_s(self, configs: Configs) -> NDArray[np.float64]:
        away = np.abs(configs[:, 1:] - self.optimum) * self.weights
        ripples = 0.4 * (1 - np.cos(2.1 * away)).sum(axis=1)
        times: NDArray[np.float64] = 1e-3 * (1 + away.sum(axis=1) + ripples)
        return times


class TrueModel:
    """Knows the formula, and counts what it is asked."""

    reads: Reads = "summary"
    knows = True

    def __init__(self, space: ToySpace) -> None:
        self.space, self.asked = space, 0

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        knobs = as_summaries(inputs)[:, : len(self.space.extents)]
        self.asked += len(knobs)
        rows = np.concatenate([np.zeros((len(knobs), 1)), knobs], axis=1).astype(np.int32)
        return -self.space.times_s(rows).astype(np.float32)

    def fit(
        self,
        inputs: Inputs,
        scores: NDArray[np.float32],
        groups: NDArray[np.int32],
    ) -> None:
        """Knows everything already."""

    def save(self, path: Path) -> None:
        """Has nothing to keep."""

    def load(self, path: Path) -> None:
        """Has nothing to read."""


def no_configs(space: ToySpace) -> Configs:
    return np.empty((0, len(space.extents) + 1), np.int32)


def heuristic_first(space: ToySpace) -> Configs:
    """What a search measures before any other when there are no seeds."""
    return space.heuristic()[None, :]

"""The role that searchers see: configs as rows of int32, legality and features as arrays."""

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_trees import Nodes
from hlotune.schedules.steps.schedule import Schedule

Pattern = Literal["contraction", "rows", "attention"]
Configs = NDArray[np.int32]
"""`(n, k)`: column 0 is the sketch, the others are positions in the knobs' value lists."""


class Space(Protocol):
    """All schedules of one kernel on one target, as integer rows.

    Every row that `sample` or `neighbours` returns is legal.  `features` returns one float32 row a
    config, of a length that all spaces share (`features.NAMES` says what stands where); they belong
    to the loop nest, not to the knobs.
    """

    @property
    def pattern(self) -> Pattern:
        """The kind of compute: models that come with hlotune have learned from contractions."""
        ...

    @property
    def size(self) -> float:
        """Number of configs, joint limits left out of account."""
        ...

    def sample(self, n: int, rng: np.random.Generator) -> Configs: ...

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        """One legal neighbour of each config.

        A knob is moved, a factor passed between levels, or the sketch changed.
        """
        ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        """False, too, where a position is none of its knob's."""
        ...

    def schedule(self, config: NDArray[np.int32]) -> Schedule: ...

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        """The config with this schedule, or the nearest one; None where no sketch fits."""
        ...

    def features(self, configs: Configs) -> NDArray[np.float32]: ...

    def nodes(self, configs: Configs) -> Nodes:
        """The loop trees, with the same slots for all configs of the space."""
        ...

    def heuristic(self) -> NDArray[np.int32]:
        """The first candidate: a formula of extents and target."""
        ...

    def firsts(self) -> Configs:
        """The first candidate of each algorithm, the heuristic foremost."""
        ...


def within(configs: Configs, counts: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which rows stand, in each column, at a position that there is."""
    inside = (configs >= 0) & (configs < counts)
    return np.asarray(inside.all(axis=1), np.bool_)

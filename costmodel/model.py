"""The role of a cost model: to say which of many schedules of a kernel are fast."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.ensemble import Ensemble
from hlotune.costmodel.inputs import Inputs, Reads, inputs_of
from hlotune.costmodel.libraries import needed_by
from hlotune.costmodel.random_model import RandomModel
from hlotune.costmodel.roofline import Roofline
from hlotune.costmodel.training_budget import Effort
from hlotune.schedules.spaces.space import Configs, Space

if TYPE_CHECKING:
    from hlotune.costmodel.trees import Objective


class CostModel(Protocol):
    """Ranks schedules of one kernel; values for different kernels need not be comparable.

    What a model has learned depends on the model it was loaded with and on the rows of the last
    `fit`, on nothing else.  So a search that is taken up again after a crash makes the same
    proposals as one that never crashed.
    """

    @property
    def reads(self) -> Reads:
        """Which inputs it takes; `predictions` hands them over."""
        ...

    @property
    def knows(self) -> bool:
        """Whether its predictions say anything yet: it was fitted, loaded, or needs neither."""
        ...

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        """Learns from all that is known, oldest first.

        Args:
            inputs: `n` rows.
            scores: `(n,)`, best time of the group / time, so the best has 1; a failure has 0.
            groups: `(n,)`, one number a kernel and machine; only rows of one group are compared.
                A model that is taught offline holds out together those of one remainder
                (`effort.group_numbers`).

        Raises ValueError where a number is none, or the rows are not of the features that it reads
        (`inputs.require_lesson`).
        """
        ...

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        """`(n,)`: larger is faster; all zeros as long as nothing is known.

        Raises ValueError for rows that are not of the features that it reads.
        """
        ...

    def save(self, path: Path) -> None:
        """Raises ValueError where nothing was learned."""
        ...

    def load(self, path: Path) -> None:
        """Starts from what a file holds; a later `fit` learns on top of it.

        Raises ModelError where the file holds no such model, or one of other features.
        """
        ...


def predictions(model: CostModel, space: Space, configs: Configs) -> NDArray[np.float32]:
    """`(n,)`: what a model says of some configs of a space."""
    return model.predict(inputs_of(model.reads, space, configs))


class Make(Protocol):
    """Makes a model that knows nothing yet, but for what needs no learning.

    Libraries that a model needs are imported when it is made.  Raises ModelError where one is
    missing.
    """

    def __call__(self, effort: Effort = "batch") -> CostModel: ...


def _mlp(effort: Effort = "batch") -> CostModel:
    with needed_by("mlp"):
        from hlotune.costmodel.mlp import mlp

    return mlp(effort)


def _tree_gru(effort: Effort = "batch") -> CostModel:
    with needed_by("treegru"):
        from hlotune.costmodel.treegru import tree_gru

    return tree_gru(effort)


def _trees(name: str, objective: "Objective") -> Make:
    def make(effort: Effort = "batch") -> CostModel:
        with needed_by(name):
            from hlotune.costmodel.trees import Trees

        return Trees(effort, objective)

    return make


def _ensemble(effort: Effort = "batch") -> CostModel:
    names = ("trees", "trees-rank", "mlp")
    return Ensemble({name: MODELS[name](effort) for name in names})


MODELS: dict[str, Make] = {
    "ensemble": _ensemble,
    "mlp": _mlp,
    "random": RandomModel,
    "roofline": Roofline,
    "trees": _trees("trees", "both"),
    "trees-rank": _trees("trees-rank", "rank"),
    "trees-time": _trees("trees-time", "time"),
    "treegru": _tree_gru,
}

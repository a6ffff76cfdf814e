"""What the kernels of a run teach the cost model."""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs, joined
from hlotune.costmodel.model import CostModel
from hlotune.search.searchers.history import Times, scores


class Experience:
    """The measurements of all kernels of a run, as the model reads them."""

    def __init__(self, model: CostModel) -> None:
        self.model = model
        self._inputs: list[Inputs] = []
        self._times: list[Times] = []
        self._groups: list[NDArray[np.int32]] = []
        self._is_learned = True

    def add(self, group: int, inputs: Inputs, times_s: Times) -> None:
        if not len(times_s):
            return
        self._inputs.append(inputs)
        self._times.append(times_s)
        self._groups.append(np.full(len(times_s), group, np.int32))
        self._is_learned = False

    def learn(self) -> None:
        """Fits the model to all measurements, where some are new to it.

        Scores are relative to the best time of each kernel.
        """
        if self._is_learned:
            return
        self._is_learned = True
        times, groups = np.concatenate(self._times), np.concatenate(self._groups)
        score = np.zeros(len(times), np.float32)
        for group in np.unique(groups):
            score[groups == group] = scores(times[groups == group])
        self.model.fit(joined(self._inputs), score, groups)

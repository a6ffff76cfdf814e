"""A learned model with a physical one beside it, which guides it where little is known."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.ensemble import Member
from hlotune.costmodel.inputs import Inputs, Reads
from hlotune.costmodel.roofline import Roofline

GUIDANCE = 0.5
"""Weight of the roofline beside what was learned, each in units of its spread."""


class Guided:
    """The roofline alone until something was learned, then both.

    After few trials trees know little of schedules unlike those that were measured, and the
    roofline knows something of all.
    """

    reads: Reads = "summary"
    knows = True

    def __init__(self, learner: Member) -> None:
        self._learner, self._roofline = learner, Roofline()
        self._spreads = (0.0, 1.0)

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        self._learner.fit(inputs, scores, groups)
        learned, physical = (float(np.std(m.predict(inputs))) for m in self._both())
        self._spreads = (learned, physical or 1.0)

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        learned, physical = self._spreads
        if not learned:
            return self._roofline.predict(inputs)
        said, guess = (m.predict(inputs) for m in self._both())
        sum_of_both: NDArray[np.float32] = said / learned + GUIDANCE * guess / physical
        return sum_of_both.astype(np.float32)

    def _both(self) -> tuple[Member, Member]:
        return self._learner, self._roofline

    def save(self, path: Path) -> None:
        """The learner's file: guidance is for models that know little, and not kept."""
        self._learner.save(path)

    def load(self, path: Path) -> None:
        self._learner.load(path)

"""What limits and the first candidate of a Winograd algorithm see of its space."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.winograd.sketch import WinogradSketch
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.knobs import Knob
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget


class WinogradView(Protocol):
    """The role of `WinogradSpace` for `limits.py` and `first_candidate.py`."""

    @property
    def outputs(self) -> int:
        """Outputs of a block along an axis: m of F(m, 3)."""
        ...

    @property
    def compute(self) -> Compute: ...

    @property
    def contraction(self) -> Contraction: ...

    @property
    def target(self) -> CpuTarget: ...

    @property
    def lanes(self) -> int: ...

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Points, blocks of outputs, and features."""
        ...

    @property
    def sketches(self) -> tuple[WinogradSketch, ...]: ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    @property
    def counts(self) -> NDArray[np.int32]: ...

    @property
    def register_tiles(self) -> NDArray[np.int32]: ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]: ...

"""What limits and the first candidate of a Winograd algorithm see of its space."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.compute import Compute
from hlotune.schedules.knobs import Knob
from hlotune.schedules.roles import Contraction
from hlotune.schedules.space import Configs
from hlotune.schedules.target import Target
from hlotune.schedules.winograd_sketch import WinogradSketch


class WinogradView(Protocol):
    """The role of `WinogradSpace` for `winograd_limits.py` and `winograd_heuristic.py`."""

    @property
    def outputs(self) -> int:
        """Outputs of a block along an axis: m of F(m, 3)."""
        ...

    @property
    def compute(self) -> Compute: ...

    @property
    def contraction(self) -> Contraction: ...

    @property
    def target(self) -> Target: ...

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

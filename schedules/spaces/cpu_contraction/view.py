"""What formulas on a contraction's space see of it: its parts, and four questions to it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch, Tiling
from hlotune.schedules.spaces.cpu_contraction.tables import Tables
from hlotune.schedules.spaces.knobs import Knobs
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget


class ContractionSpace(Protocol):
    """The role of `cpu.CpuSpace` for first candidates, neighbours, paths and limits."""

    @property
    def contraction(self) -> Contraction: ...

    @property
    def target(self) -> CpuTarget: ...

    @property
    def algorithm(self) -> str: ...

    @property
    def lanes(self) -> int:
        """Elements of the accumulator's type in a vector."""
        ...

    @property
    def sketches(self) -> tuple[Sketch, ...]: ...

    @property
    def knobs(self) -> Knobs: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def tiles(self) -> dict[str, NDArray[np.int32]]:
        """For each vector axis the register tiles that fit, as positions in the register knobs."""
        ...

    @property
    def hands_over(self) -> bool:
        """Whether the last stage reads sums in registers, where reductions are whole."""
        ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]: ...

    def tiling(self, config: NDArray[np.int32]) -> Tiling: ...

    def heuristic(self) -> NDArray[np.int32]: ...

    def held(self, vector: Ints, tile: Ints, unrolled: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Statements of the sums that are unrolled, and whether registers hold a register tile.

        Args:
            vector: `(n,)`, the number of the vectorized axis.
            tile: `(n, A)`, the elements of a register tile along each parallel axis.
            unrolled: `(n,)`, the steps of the reduction that are unrolled.
        """
        ...

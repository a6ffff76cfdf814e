"""What of an attention's space its helpers read."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.spaces.knobs import Knobs
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget


class AttentionKnobs(Protocol):
    @property
    def compute(self) -> Compute: ...

    @property
    def target(self) -> CpuTarget: ...

    @property
    def algorithm(self) -> str: ...

    @property
    def stages(self) -> tuple[Stage, ...]: ...

    @property
    def extents(self) -> Mapping[str, int]:
        """By axis, of all stages inside the blocks."""
        ...

    @property
    def lanes(self) -> Mapping[str, int]:
        """By stage."""
        ...

    @property
    def knobs(self) -> Knobs: ...

    @property
    def columns(self) -> Mapping[tuple[str, str], int]:
        """The columns of a config, by kind and stage of the knob."""
        ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]: ...


def put(space: AttentionKnobs, config: NDArray[np.int32], kind: str, axis: str, value: int) -> None:
    """Puts the nearest value that a knob has into a config."""
    column = space.columns[kind, axis]
    values = np.array(space.knobs.knobs[column - 1].values)
    config[column] = int(np.argmin(np.abs(values - value)))

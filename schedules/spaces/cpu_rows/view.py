"""What of a rows' space its helpers read."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.spaces.cpu_rows.partitions import Partition
from hlotune.schedules.spaces.knobs import Knobs
from hlotune.schedules.spaces.space import Configs
from hlotune.schedules.targets.cpu import CpuTarget


class RowsKnobs(Protocol):
    @property
    def compute(self) -> Compute: ...

    @property
    def target(self) -> CpuTarget: ...

    @property
    def knobs(self) -> Knobs: ...

    @property
    def counts(self) -> NDArray[np.int32]: ...

    @property
    def columns(self) -> Mapping[tuple[str, str], int]:
        """The values of a config, by kind and axis of the knob."""
        ...

    @property
    def likes(self) -> Mapping[str, str]:
        """By stage, the one whose knobs it has."""
        ...

    @property
    def lanes(self) -> Mapping[str, int]:
        """By stage."""
        ...

    @property
    def holds(self) -> Mapping[str, bool]:
        """By stage: whether it is a reduction whose results may stay in registers."""
        ...

    @property
    def forms(self) -> Mapping[str, tuple[Form, ...]]:
        """By stage."""
        ...

    @property
    def peeled(self) -> Mapping[str, tuple[str, ...]]:
        """By stage: axes along which loads may lie outside of their tensors."""
        ...

    def values(self, configs: Configs, kind: str, axis: str) -> NDArray[np.int64]:
        """`(n,)`: what one knob stands at; 0 where the space has no such knob."""
        ...


class Movable(Protocol):
    """What of a space its random configs and their neighbours are made of."""

    @property
    def sketches(self) -> Sequence[object]: ...

    @property
    def counts(self) -> NDArray[np.int32]: ...

    @property
    def columns(self) -> Mapping[tuple[str, str], int]:
        """The columns of a config, by kind and axis of the knob."""
        ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]: ...

    def heuristic(self) -> NDArray[np.int32]: ...


class Staged(Protocol):
    """What of a space the features of its stages are made of."""

    @property
    def compute(self) -> Compute: ...

    @property
    def target(self) -> CpuTarget: ...

    @property
    def lanes(self) -> Mapping[str, int]:
        """By stage."""
        ...

    @property
    def sketches(self) -> tuple[Partition, ...]: ...

    def groups(self, configs: Configs) -> Sequence[tuple[Any, NDArray[np.int64]]]:
        """All stages of all configs, each with the rows of the configs that it belongs to."""
        ...


class Rows(RowsKnobs, Protocol):
    @property
    def sketches(self) -> tuple[Partition, ...]: ...

    def legal(self, configs: Configs) -> NDArray[np.bool_]: ...

    def heuristic(self) -> NDArray[np.int32]: ...

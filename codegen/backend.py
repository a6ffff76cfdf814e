"""What a backend is: how schedules become code for one kind of target, and how the code is called.

A backend is one value, `BACKEND` of its module, and a row in the tables of `backends.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.built import Built
from hlotune.hlo.graph import TensorType
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Target

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """The types that a kernel takes and gives, in its order."""

    arguments: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    """Results that are written over arguments, as (result, argument)."""
    stacks: Mapping[int, TensorType] = field(default_factory=dict)
    """Packed arguments of which each call reads one of several parts, with the type of the index.
    """


@dataclass(frozen=True, slots=True, eq=False)
class SiteCode:
    """What stands in the place of a site: a StableHLO module, and further arguments of it."""

    text: str
    """Its `@main` takes the site's arguments, then the indices of the signature's stacks in the
    order of the arguments, and then the packed constants."""
    packed: tuple[NDArray[np.uint8], ...] = ()
    """Constants in the form in which the code takes them, by the positions of the arguments."""


class Backend(Protocol):
    """Turns schedules into code for one kind of target, and calls that code."""

    def emit(self, compute: Compute, schedule: Schedule, target: Target) -> Built:
        """The code of a schedule.

        Raises ScheduleError where the schedule does not apply, and BuildError where there is no
        code for it.
        """
        ...

    def load(self, built: Built) -> Any:
        """The code in this process, as the other verbs take it.

        Raises BuildError where this process cannot run it.
        """
        ...

    def replacement(
        self, loaded: Any, signature: Signature, constants: Mapping[int, Array]
    ) -> SiteCode:
        """StableHLO that runs loaded code in this process.

        Args:
            constants: values of those arguments that `built.packed` names; of a stack all parts,
                along a first axis.
        """
        ...

    def call(self, loaded: Any, signature: Signature, arguments: Sequence[Array]) -> list[Array]:
        """The results of one call, in the shapes and types of the signature.

        Raises WrongResult where the code says itself that it failed.
        """
        ...

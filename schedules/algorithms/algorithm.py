"""What an algorithm is: a rewriting of a compute that precedes every step, and its consequences."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.spaces.space import Configs, Pattern, Space
from hlotune.schedules.targets.cpu import CpuTarget

Order = Literal["alone", "first", "estimated", "last"]
Rewriting = Callable[[Compute], Compute]


class AlgorithmSpace(Space, Protocol):
    """The space of one algorithm: a part of all that a kernel can be scheduled as."""

    @property
    def algorithm(self) -> str:
        """The name that its schedules bear."""
        ...

    @property
    def sketches(self) -> Sequence[object]: ...

    @property
    def counts(self) -> NDArray[np.int32]:
        """`(k,)`: the number of values of each column of a config."""
        ...

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        """`(n,)`: a hash of the nest of each config; equal nests have equal digests."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One row of the table of algorithms: all that the rest of hlotune asks of one."""

    name: str
    """The name in schedules, or its part ahead of the first parenthesis where it has arguments."""
    signature: str = ""
    """The name with its arguments, for error messages; "" where it has none."""
    rewriting: Callable[[str], Rewriting | None]
    """Gives the rewriting of a full name, or None where the arguments are none of this algorithm. A
    rewriting raises ScheduleError for a compute that it does not apply to.
    """
    spaces: Callable[[Compute, CpuTarget], Sequence[AlgorithmSpace]]
    """The spaces that have a legal schedule; none where the algorithm does not apply.
    May raise UnsupportedKernel where no algorithm at all can take the compute."""
    pattern: Pattern | Literal["any"] = "contraction"
    """The kind of compute that it is asked about; others have no space by it."""
    numerics: Numerics = "strict"
    """The least setting that allows it.  An algorithm that only reorders sums is `strict`."""
    outputs: int = 0
    """Outputs of a block along an axis, for the error bound of Winograd's algorithms; 0 where the
    bound is that of a sum in any order."""
    order: Order = "estimated"
    """When its first candidate is measured: `estimated` ones by their estimated time.  Where one
    is `alone`, those of other algorithms, `direct` among them, are left to the search: it reads a
    tensor less, and models that were taught without it would choose another of several."""
    check_target: Callable[[Compute, CpuTarget], None] = lambda compute, target: None
    """Raises ScheduleError for a target without the instructions that it needs."""
    check_nest: Callable[[LoopNest], None] = lambda nest: None
    """Raises ScheduleError for a finished nest that lacks a step it needs."""

    @property
    def shown(self) -> str:
        """The name for people, with its arguments."""
        return self.signature or self.name

    def is_allowed(self, numerics: Numerics) -> bool:
        return NUMERICS.index(self.numerics) <= NUMERICS.index(numerics)


def constant(rewriting: Rewriting) -> Callable[[str], Rewriting | None]:
    """The `rewriting` of an algorithm whose name has no arguments."""
    return lambda name: rewriting


def numbered(name: str, rewriting: Callable[[int], Rewriting]) -> Callable[[str], Rewriting | None]:
    """The `rewriting` of an algorithm whose name has a number above 1: `blocked_scan(64)`."""
    pattern = re.compile(rf"{name}\((\d+)\)")

    def named(algorithm: str) -> Rewriting | None:
        found = pattern.fullmatch(algorithm)
        return rewriting(int(found[1])) if found and int(found[1]) > 1 else None

    return named

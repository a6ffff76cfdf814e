"""Steps that hold the results of a stage in registers while they come about."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.nest import LoopNest, StageNest


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Holds the results of a stage in registers inside one of its loops, or ("") over all of them.

    for i: for r: c[i] += a[i, r]   ->   for i: x = 0; for r: x += a[i, r]; c[i] = x

    All loops over parallel axes inside must be unrolled or vectorized.  Where reduction loops stand
    outside, the registers are loaded from the result and stored back.  With "" the whole region
    lives in registers, for a consumer that reads it there.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        start = s.index(self.axis) + 1 if self.axis else 0
        # a register is known by its tensor and its point alone
        single = len(s.stage.stores) == len(s.stage.stored)
        message = f"{self.stage} stores several results of a point in one tensor: leave it out"
        require(single, "accumulate", message)
        reduce = {a.name for a in s.stage.reduce}
        for loop in s.loops[start:]:
            fixed = loop.root in reduce or loop.kind in ("unroll", "vectorize")
            require(fixed, "accumulate", f"{loop.axis} is neither a reduction nor unrolled")
        require(
            bool(self.axis) or s.at is not None,
            "accumulate",
            "a stage at the root has no consumer to hold for",
        )
        scope = s.scope if self.axis else "register"
        changed = replace(s, accumulate=self.axis, scope=scope)
        check_held(changed)
        return nest.put(changed)


@dataclass(frozen=True, slots=True)
class AddUp:
    """Lets results in registers begin at nothing each time, and merges them with what is in memory
    at their end.

    for r.0: x = c[i]; for r.1: x += a[i, r]; c[i] = x
    ->   for r.0: x = 0; for r.1: x += a[i, r]; c[i] += x

    The error of a sum of n terms then grows with those of a piece and the pieces, and not with n:
    blocked summation (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).  Any
    other monoid merges its pieces alike.
    """

    stage: str

    def apply(self, nest: LoopNest) -> LoopNest:
        changed = replace(nest.stage(self.stage), adds_up=True)
        check_pieces(changed)
        return nest.put(changed)


def check_held(s: StageNest) -> None:
    """Raises ScheduleError where registers would begin inside a vector, with its lanes.

    Of finished nests too: a later step may vectorize the loop.
    """
    around = s.loops[s.index(s.accumulate)].kind if s.accumulate else "serial"
    message = f"{s.accumulate} of {s.stage.name} is vectorized: hold results in a loop around it"
    require(around != "vectorize", "accumulate", message)


def check_pieces(s: StageNest) -> None:
    """Raises ScheduleError where results do not come together of pieces in registers.

    Of finished nests too: later steps may hold results elsewhere, or put them on a matrix unit.
    """
    name = s.stage.name
    require(s.stage.combine is not None, "add_up", f"{name} is no reduction")
    held = bool(s.accumulate) and s.tiles is None
    require(held, "add_up", f"no loop of {name} has its results in registers inside")
    outside = s.loops[: s.index(s.accumulate or "") + 1]
    pieces = {x.root for x in outside} & {a.name for a in s.stage.reduce}
    require(bool(pieces), "add_up", f"no reduction stands around the results of {name}")

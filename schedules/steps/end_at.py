"""The step that lets loops end where the rest of an axis changes nothing."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.nest import LoopNest, StageNest, readers, reads


@dataclass(frozen=True, slots=True)
class EndAt:
    """Ends the loops along an axis at the end that the compute has for it, at the next multiple.

    for i.0: for r in 64: c += a[i, r]   ->   for i.0: for r in min(64, i.0 + 4): c += a[i, r]

    The end is that of the last point of the region that the stage computes there, so that all
    stages of one place end alike, and none reads what another one left out.
    """

    stage: str
    axis: str
    multiple: int

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        ends = dict(s.stage.ends)
        require(self.axis in ends, "end_at", f"{self.stage} has no end along {self.axis}")
        end = ends[self.axis]
        rising = end.constant >= 1 and all(c > 0 for _, c in end.terms)
        require(rising, "end_at", f"the end {end} may lie ahead of the axis")
        require(self.multiple >= 1, "end_at", f"expected a positive multiple, got {self.multiple}")
        changed = replace(s, ends_at=(*s.ends_at, (self.axis, self.multiple)))
        return nest.put(changed)


def check_ends(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where a stage ends short of what others read of it.

    Of finished nests: loops may be split after the step.
    """
    for axis, multiple in s.ends_at:
        name = s.stage.name
        require(s.at is not None, "end_at", f"{name} stands at the root, where its region is whole")
        around = [x.step for x in s.loops if x.root == axis and x.kind == "serial"]
        whole = bool(around) and multiple % around[-1] == 0
        require(whole, "end_at", (
            f"loops of {name} along {axis} do not come to multiples of {multiple}: walk it in "
            "steps that divide these"
        ))  # fmt: skip
        parallel = {a.name for a in s.stage.parallel}
        if axis in parallel:
            for user in readers(nest, s):
                _check_reader(s, user, axis, multiple)


def _check_reader(s: StageNest, user: StageNest, axis: str, multiple: int) -> None:
    """Raises ScheduleError where a reader goes on beyond what a stage computes."""
    d = (s.stage.stored_axes or ()).index(axis)
    places = {x.index[d] for x in reads(s.stage, user.stage)}
    own = [a for a, m in user.ends_at if m == multiple and places == {Affine.axis(a)}]
    end = dict(user.stage.ends).get(own[0]) if own else None
    alike = user.at == s.at and end == dict(s.stage.ends)[axis]
    require(alike, "end_at", (
        f"{user.stage.name} reads of {s.stage.name} beyond its end along {axis}: let it end there "
        "too"
    ))  # fmt: skip

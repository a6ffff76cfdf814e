"""The step that takes a reduction in the lanes of a vector."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.nest import LoopNest, StageNest


@dataclass(frozen=True, slots=True)
class VectorizeReduction:
    """Takes the iterations of the innermost reduction at once, and merges the lanes at the end.

    for r.0: for r.1 in 8: x += a[r]   ->   x[0..8] = 0; for r.0: x[l] += a[r.0 + l]; sum of x

    Results are held in registers around the loop: each has a vector of its own there, whose lanes
    begin at nothing.  Where they leave, lanes are merged by halves, and with what is in memory
    where other reductions stand outside.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        require(k == len(s.loops) - 1, "vectorize_reduction", f"{self.axis} is not innermost")
        plain = s.loops[k].step == 1
        message = f"{self.axis} does not walk element by element"
        require(plain, "vectorize_reduction", message)
        reduces = s.loops[k].root in {a.name for a in s.stage.reduce}
        require(reduces, "vectorize_reduction", f"{self.axis} is no reduction")
        loops = (*s.loops[:k], replace(s.loops[k], kind="vectorize"))
        return nest.put(replace(s, loops=loops))


def check_lanes(s: StageNest) -> None:
    """Raises ScheduleError where lanes of a reduction have no registers to stay in.

    Of finished nests: the step may stand before the one that holds results in registers, and a
    later one may put them on a matrix unit.
    """
    if not s.reduces_lanes:
        return
    name, root = s.stage.name, s.vector_root
    held = s.accumulate is not None and s.tiles is None
    require(held, "vectorize_reduction", (
        f"no loop of {name} holds its results in registers around the lanes of {root}: "
        "accumulate there"
    ))  # fmt: skip

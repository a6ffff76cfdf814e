"""Steps for operands and results that are larger than the caches."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.nest import LoopNest, Request, StageNest
from hlotune.schedules.steps.known_places import check_known_places

MOST_AHEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ahead:
    """Asks with each vector that is loaded of an argument for what lies some bytes behind it.

    for i: for j: s(x[i, j])   ->   for i: for j: {fetch x[i, j] + 4096 bytes; s(x[i, j])}

    The hardware stops at the end of each page; and while a stage computes functions of one row, the
    next row may already be on its way.
    """

    stage: str
    tensor: str
    bytes: int
    cache: int = 0
    """The cache that they go to, the first or the second; 0 leaves it to `cache_by_rule`.  Steps
    that were recorded before there was this field have 0, and go where the rule says today."""

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        sensible = 0 < self.bytes <= MOST_AHEAD_BYTES
        require(sensible, "ahead", f"expected 1 to {MOST_AHEAD_BYTES} bytes, got {self.bytes}")
        require(self.cache in (0, 1, 2), "ahead", f"expected cache 1 or 2, got {self.cache}")
        found = [x for x in s.stage.loads if x.tensor == self.tensor]
        require(bool(found), "ahead", f"{self.stage} does not load {self.tensor}")
        for x in found:
            check_known_places("ahead", x)
        argument = nest.compute.tensor(self.tensor).role in ("argument", "constant")
        require(argument, "ahead", f"{self.tensor} is no argument")
        asked = Request(self.tensor, self.bytes, self.cache)
        return nest.put(replace(s, ahead=(*s.ahead, asked)))


@dataclass(frozen=True, slots=True)
class NonTemporal:
    """Stores the results of a stage to memory, not to the caches.

    A store to a line that is in no cache reads it first: a third of all traffic where as much is
    read as is stored.  Whole vectors at aligned addresses are stored so, others as ever: of a scan
    that goes on from results in memory also the last of those that are written out together.  A
    reduction's results are stored so where registers hold them all along.
    """

    stage: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        results = all(nest.compute.tensor(x.tensor).role == "result" for x in s.stage.stores)
        require(results, "non_temporal", f"others read what {self.stage} stores")
        changed = replace(s, non_temporal=True)
        check_stored_once(changed)
        return nest.put(changed)


def check_stored_once(s: StageNest) -> None:
    """Raises ScheduleError where a stage goes on from results that it has stored past the caches.

    Finished nests are checked too: later steps may hold results elsewhere, or move loops outside.
    """
    if not s.stage.reduce or s.stage.scans:
        return
    outside = s.loops[: s.index(s.accumulate) + 1] if s.accumulate else s.loops
    pieces = {x.root for x in outside if x.step < s.stage.extents[x.root]}
    once = bool(s.accumulate) and not s.tiles and not pieces & {a.name for a in s.stage.reduce}
    require(once, "non_temporal", f"{s.stage.name} loads its results again")
